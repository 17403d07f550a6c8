-- acquire: take each lease that is free, ours by a lost reply (R7), or left by a dead owner (R13).
-- KEYS  2 node of the instance  then per item: lease, result
-- ARGV  12 prefix of node keys  13 prefix of lease keys  14 channel to all
-- reply  … per item  {1, fence, how, polled_at_ms}  granted; how: 0 free, 1 adopted, 2 takeover
--                    {2, owner} held   {3} hold-off   {4} no heartbeat   {5} late   {6, why} failed
if EPOCH ~= NAMED then return reply('epoch') end
local out = reply('ok')
-- A leader's heartbeat begins with the grant.
local alive = BEATS ~= '' or redis.call('EXISTS', KEYS[2]) == 1

-- Grows with every grant, whatever this server has forgotten and wherever its clock stands. Mostly it is the
-- same for all, and written out once.
local LEAST = math.max(NOW_US, FLOOR_US + 1, tonumber(ARGV[4]) + 1)
local LEAST_TEXT = exact(LEAST)
local function next_fence(granted)
  if granted < LEAST then return LEAST, LEAST_TEXT end
  return granted + 1, exact(granted + 1)
end

-- R13: the rights of an owner end before its heartbeat does. A leader's may have been deleted, so that only
-- one that is there and too old proves anything; what is left without any ends with its TTL.
local function is_dead(owner)
  if BEATS == '' then return redis.call('EXISTS', ARGV[12] .. owner) == 0 end
  local beaten = tonumber(redis.pcall('GET', BEATS .. owner))
  return beaten and NOW_US / 1000 - beaten > BEAT_MS
end

local function held_by(lease, owner)
  -- No lease outlasts its TTL, not even when the clock was set back.
  local left = redis.call('PTTL', lease)
  if left < 0 or left > TTL_MS then redis.call('PEXPIRE', lease, TTL_MS) end
  return {2, owner}
end

-- A leader takes its predecessor's heartbeat away. If that one leads other roles, it writes it again.
local function succeed(record, predecessors)
  for _, it in ipairs(predecessors) do
    if it ~= ME then redis.call('DEL', BEATS .. it) end
  end
  redis.pcall('HSET', record, 'leader' .. SUFFIX, ME)
end

local function acquire(lease, result, owner)
  local how = 0
  if owner == ME then
    how = 1
  elseif owner then
    if HOLDING_OFF or not is_dead(owner) then return held_by(lease, owner) end
    how = 2
  end
  if HOLDING_OFF then return {3} end
  if not alive then return {4} end
  if LATE then return {5} end
  local stored = redis.pcall('HMGET', result, GRANTED, 'started_at_ms', 'leader' .. SUFFIX)
  if failed(stored) then return {6, stored.err} end
  -- Beyond 2^53 a number stands still: nobody granted that, so it is not believed.
  local granted = tonumber(stored[1]) or 0
  if not (granted >= 0 and granted < 9007199254740992) then granted = 0 end
  local fence, text = next_fence(granted)
  -- The fence first: if there is no memory for it, nothing has been granted.
  local written = redis.pcall('HSET', result, GRANTED, text)
  if failed(written) then return {6, written.err} end
  if stored[1] then unretire(result) end
  local beaten = beat()
  if failed(beaten) then return {6, beaten.err} end
  local set
  if how == 0 then set = redis.pcall('SET', lease, ME, 'NX', 'PX', ARGV[5])
  else set = redis.pcall('SET', lease, ME, 'PX', ARGV[5]) end
  if failed(set) then return {6, set.err} end
  -- What has no owner and is there all the same is a key of another type.
  if not set then return {6, failed(redis.pcall('GET', lease)) or 'the lease is not free'} end
  if BEATS ~= '' then succeed(result, {stored[3] or ME, owner or ME}) end
  return {1, fence, how, stored[2] or ''}
end

local leases, took = {}, {}
for i = 3, #KEYS, 2 do leases[#leases + 1] = KEYS[i] end
-- All in one call: each costs more than what it does.
local owners = #leases > 0 and redis.call('MGET', unpack(leases)) or {}
for i = 3, #KEYS, 2 do
  local answer = acquire(KEYS[i], KEYS[i + 1], owners[(i - 1) / 2])
  if answer[1] == 1 then took[#took + 1] = string.sub(KEYS[i], #ARGV[13] + 1) end
  out[#out + 1] = answer
end
-- One word for all of them, so that nobody has to read who owns what.
if #took > 0 then redis.pcall('PUBLISH', ARGV[14], cjson.encode({from = ME, took = took})) end
return out
