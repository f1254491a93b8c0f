-- ARGV  request, channel
if not holder then
  return { 'free' }
end
if ours then
  redis.call('HSET', beside, 'request', ARGV[1])
  -- So that the holder looks now and not only when it has to renew.
  redis.pcall('PUBLISH', ARGV[2], 'look')
end
return lease('held')
