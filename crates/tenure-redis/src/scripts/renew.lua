-- ARGV  holder, token, ttl in ns, ttl in ms
if ours and holder == ARGV[1] and fields[1] == ARGV[2] then
  prolong(ARGV[3], ARGV[4])
  return { 'renewed', ends, fields[7] }
end
if holder then
  return lease('superseded')
end
if fields[1] == ARGV[2] and fields[2] == ARGV[1] and now_ms > (tonumber(fields[5]) or 0) then
  return { 'expired' }
end
return { 'deleted' }
