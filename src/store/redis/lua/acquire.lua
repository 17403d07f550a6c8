-- acquire: take each lease that is free, ours by a lost reply (R7), or left by a dead owner (R13).
-- KEYS  2 node of the instance  3 the highest fence of all (a role's is in its record)
--       4 what this instance was granted last  then per item: lease, result
-- ARGV  12 prefix of node keys  13 prefix of lease keys  14 channel to all  15 what to say there if all are
--       granted  16 how many ms KEYS[4] lasts
-- reply  … fence, number of items  then for each that was not simply free and is granted now: its place, counted
--        from 1, and  1, how: granted, 1 adopted or 2 takeover   2, owner: held   3 hold-off   4 no heartbeat
--        5 late   6, why: failed
if EPOCH ~= NAMED then return reply('epoch') end
local out = reply('ok')
-- A leader's heartbeat begins with the grant.
local alive = BEATS ~= '' or redis.call('EXISTS', KEYS[2]) == 1
local refusal
if LATE then refusal = 5 end
if not alive then refusal = 4 end
if HOLDING_OFF then refusal = 3 end

-- Grows with every grant, whatever this server has forgotten and wherever its clock stands. The highest one
-- stands in a place of its own, so that none has to be looked up; a release has raised that of its tenure by
-- one more.
local highest, raised = nil, 0
if BEATS == '' then
  highest, raised = redis.pcall('GET', KEYS[3]), 1
else
  highest = redis.call('HGET', KEYS[3], GRANTED)
end
highest = number(highest) or 0
local FENCE = math.max(NOW_US, FLOOR_US + 1, (number(ARGV[4]) or 0) + 1, highest + raised + 1)
local FENCE_TEXT = exact(FENCE)
out[#out + 1] = FENCE
out[#out + 1] = (#KEYS - 4) / 2

-- With the first grant of a call, and before it counts.
local noted = BEATS ~= ''
local function note()
  if noted then return end
  local unwritten = failed(redis.pcall('SET', KEYS[3], FENCE_TEXT)) or note_granted(KEYS[4], FENCE_TEXT, ARGV[16])
  noted = not unwritten
  return unwritten
end

-- R13: the rights of an owner end before its heartbeat does. A leader's may have been deleted, so that only
-- one that is there and too old proves anything; what is left without any ends with its TTL.
local dead = {}
local function is_dead(owner)
  if BEATS == '' then
    if dead[owner] == nil then dead[owner] = redis.call('EXISTS', ARGV[12] .. owner) == 0 end
    return dead[owner]
  end
  local beaten = number(redis.pcall('GET', BEATS .. owner))
  return beaten and NOW_US / 1000 - beaten > BEAT_MS
end

local function held_by(lease, owner)
  -- No lease outlasts its TTL, not even when the clock was set back.
  local left = redis.call('PTTL', lease)
  if left < 0 or left > TTL_MS then redis.call('PEXPIRE', lease, TTL_MS) end
  return 2, owner
end

-- A leader takes its predecessor's heartbeat away. If that one leads other roles, it writes it again.
local function succeed(record, owner)
  local predecessor = redis.pcall('HGET', record, 'leader' .. SUFFIX)
  for _, it in ipairs({not failed(predecessor) and predecessor or ME, owner or ME}) do
    if it ~= ME then redis.call('DEL', BEATS .. it) end
  end
  redis.pcall('HSET', record, 'leader' .. SUFFIX, ME)
end

-- The places in KEYS of those that were not granted.
local refused = {}
local function tell(i, code, what)
  if code ~= 1 then refused[#refused + 1] = i end
  out[#out + 1] = {(i - 3) / 2, code, what}
end

-- Mostly all are free, and one command for all of them costs much less than one for each. It is a right that one
-- can do without.
local function take_all()
  if BEATS ~= '' or refusal or #KEYS == 4 then return false end
  local owners = {}
  for i = 5, #KEYS, 2 do owners[i - 4], owners[i - 3] = KEYS[i], ME end
  return redis.pcall('MSETNX', unpack(owners)) == 1
end

-- What was taken, and has no place for its fence, is given back at once. Nothing in here ends the script: what comes
-- behind it would have no end.
local function begin_all()
  for i = 5, #KEYS, 2 do
    local lasts, fenced = prolong(KEYS[i]), try('HSET', KEYS[i + 1], GRANTED, FENCE_TEXT)
    local unwritten = failed(lasts) or failed(fenced) or note()
    if unwritten then
      try('DEL', KEYS[i])
      tell(i, 6, unwritten)
    end
  end
end

-- What became of one: a code, and what is to be said of it. Nothing when it was free, and is granted.
local function acquire(lease, result)
  local owner = redis.pcall('GET', lease)
  if failed(owner) then return 6, owner.err end
  local how = (not owner and 0) or (owner == ME and 1) or 2
  if how == 2 and (HOLDING_OFF or not is_dead(owner)) then return held_by(lease, owner) end
  if refusal then return refusal end
  -- The fence first: if there is no memory for it, nothing has been granted.
  local unwritten = failed(redis.pcall('HSET', result, GRANTED, FENCE_TEXT)) or note()
  if unwritten then return 6, unwritten end
  local beaten = beat()
  if failed(beaten) then return 6, beaten.err end
  local set = redis.pcall('SET', lease, ME, 'PX', ARGV[5])
  if failed(set) then return 6, set.err end
  if BEATS ~= '' then succeed(result, owner) end
  if how > 0 then return 1, how end
end

if take_all() then
  begin_all()
else
  for i = 5, #KEYS, 2 do
    local code, what = acquire(KEYS[i], KEYS[i + 1])
    if code then tell(i, code, what) end
  end
end

-- One word for all of them, so that nobody has to read who owns what: the one that was prepared, if it is true.
local n_took, word = (#KEYS - 4) / 2 - #refused, ARGV[15]
if n_took > 0 and #refused > 0 then
  local took, next_refused = {}, 1
  for i = 5, #KEYS, 2 do
    if refused[next_refused] == i then
      next_refused = next_refused + 1
    else
      took[#took + 1] = string.sub(KEYS[i], #ARGV[13] + 1)
    end
  end
  word = cjson.encode({from = ME, took = took})
end
if n_took > 0 then redis.pcall('PUBLISH', ARGV[14], word) end
return out
