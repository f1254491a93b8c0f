if holder then
  return lease('held')
end
return { 'free' }
