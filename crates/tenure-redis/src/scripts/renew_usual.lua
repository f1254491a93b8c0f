-- The usual renewal, in as few steps as can be. Whatever is not as usual is left to the
-- long way below, which begins anew.
do
  local usual = redis.pcall('HMGET', KEYS[2], 'token', 'holder', 'until', 'request', 'kept')
  if usual[1] == ARGV[2] and usual[2] == ARGV[1]
    and redis.pcall('GET', KEYS[1]) == ARGV[1]
    and redis.pcall('PEXPIRETIME', KEYS[1]) == tonumber(usual[3])
    -- The hash outlives the new term by more than a day, so it need not be prolonged.
    and tonumber(usual[3]) + 86400000 + ARGV[4] < (tonumber(usual[5]) or 0) then
    -- The expiry first: it needs no memory, so a full server renews, too.
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
    local ends = redis.call('PEXPIRETIME', KEYS[1])
    redis.call('HSET', KEYS[2], 'until', ends, 'ttl', ARGV[3])
    return { 'renewed', ends, usual[4] }
  end
end
