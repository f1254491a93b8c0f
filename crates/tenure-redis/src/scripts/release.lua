-- ARGV  holder, token, channel
if not (ours and holder == ARGV[1] and fields[1] == ARGV[2]) then
  return { 'not held' }
end
-- Deleting needs no memory, so a full server still releases.
redis.call('DEL', record)
redis.call('HSET', beside, 'holder', '', 'until', '0', 'request', '')
redis.call('PEXPIREAT', beside, text(now_ms + KEEP))
redis.pcall('PUBLISH', ARGV[3], 'free')
return { 'released' }
