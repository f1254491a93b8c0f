-- What every script begins with: looks at the record and at what stands beside it.
--
-- KEYS[1]  the record that others read too: a string, its value the holder, with an expiry
-- KEYS[2]  what only we write: a hash beside it
-- ARGV     the last one: by how many ms the expiries may have moved apart on a Cluster
--
-- The hash counts only if the record is the one that was written with it: the same
-- holder, ending at the same millisecond. If anybody else has written the record since,
-- even under our holder's name, it ends at another moment.
local record, beside = KEYS[1], KEYS[2]
local slack = tonumber(ARGV[#ARGV])
-- The hash ends between one and two of these after its lease, in ms: a day. So it need
-- not be prolonged with every renewal.
local KEEP = 86400000

local function text(number)
  -- tostring would round to 14 digits.
  return string.format('%.0f', number)
end

local function clock_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- When a key ends, in milliseconds since 1970.
local function end_of(name)
  local ends = redis.pcall('PEXPIRETIME', name)
  if type(ends) == 'number' then
    return ends
  end
  -- Before Redis 7.0: from the rest, if the clock did not move on while it was asked.
  local moment
  for _ = 1, 100 do
    local before = math.floor(clock_us() / 1000)
    local rest = redis.call('PTTL', name)
    if rest < 0 then
      return rest
    end
    moment = before + rest
    if math.floor(clock_us() / 1000) == before then
      break
    end
  end
  return moment
end

local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)

local holder = redis.pcall('GET', record)
if type(holder) == 'table' then
  return { 'unreadable', 'record', holder.err }
end
local fields = redis.pcall(
  'HMGET', beside, 'token', 'holder', 'attempt', 'ttl', 'until', 'since', 'request', 'kept')
if fields.err then
  return { 'unreadable', 'beside', fields.err }
end

local last = 0
if fields[1] then
  last = tonumber(fields[1])
  -- Up to here numbers are whole, with room for the next ones.
  if not last or last < 0 or last ~= math.floor(last) or last > 9007199254740000 then
    return { 'unreadable', 'beside', 'its token is no number that can grow' }
  end
elseif fields[2] or fields[5] then
  return { 'unreadable', 'beside', 'it has no token' }
end

local ends, ours = 0, false
if holder then
  ends = end_of(record)
  if ends < 0 then
    return { 'unreadable', 'record', 'it has no expiry' }
  end
  ours = fields[2] == holder and fields[5] == text(ends)
  if slack > 0 and fields[2] == holder and not ours then
    -- A slot that moves takes the rest of each expiry along, not its moment, so that
    -- both keys end at new moments, by the new node's clock. They have moved by the
    -- same, but for how long the transfer of the one and of the other took.
    local moved = end_of(beside) - (tonumber(fields[8]) or 0)
    ours = math.abs(ends - (tonumber(fields[5]) or 0) - moved) <= slack
  end
end

-- Begins the term of our record anew. The expiry comes first: it needs no memory, so a
-- full server does this, too.
local function prolong(ttl_ns, ttl_ms)
  ends = now_ms + tonumber(ttl_ms)
  redis.call('PEXPIREAT', record, text(ends))
  redis.call('HSET', beside, 'ttl', ttl_ns, 'until', text(ends), 'kept', text(ends + 2 * KEEP))
  redis.call('PEXPIREAT', beside, text(ends + 2 * KEEP))
  fields[4] = ttl_ns
end

-- The live lease, as the answer that begins with this word.
local function lease(word)
  if ours then
    return {
      word, 'ours', holder, fields[1], text(ends), text(now_us),
      fields[3] or '', fields[4] or '', fields[6] or '', fields[7] or '',
    }
  end
  -- A tenure of others has no token; it came after our last one, so it is shown with the
  -- number after that, which is never given to a tenure of ours.
  return { word, 'foreign', holder, text(last + 1), text(ends), text(now_us) }
end
