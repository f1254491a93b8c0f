-- ARGV  holder, attempt, ttl in ns, ttl in ms, channel
if ours and holder == ARGV[1] and fields[3] == ARGV[2] then
  prolong(ARGV[3], ARGV[4])
  return lease('granted')
end
if holder then
  return lease('held')
end

-- A record that ends at `ends` is gone in the millisecond after it, so no part of the
-- term is lost by counting in whole ones.
ends = now_ms + tonumber(ARGV[4])
local token, since, kept = text(math.max(last + 2, now_us)), text(now_us), text(ends + 2 * KEEP)
-- The hash first: whatever fails after it leaves a record that expires, or none.
redis.call('HSET', beside, 'token', token, 'holder', ARGV[1], 'attempt', ARGV[2],
  'ttl', ARGV[3], 'until', text(ends), 'since', since, 'request', '', 'kept', kept)
redis.call('PSETEX', record, ARGV[4], ARGV[1])
redis.call('PEXPIREAT', record, text(ends))
redis.call('PEXPIREAT', beside, kept)
-- A hint: it must not cost the lease if it may not be published.
redis.pcall('PUBLISH', ARGV[5], table.concat(
  { 'held', token, ARGV[2], ARGV[3], text(ends), since, ARGV[1] }, '\n'))
return { 'granted', 'ours', ARGV[1], token, text(ends), since, ARGV[2], ARGV[3], since, '' }
