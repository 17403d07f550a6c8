-- acquire: grant each lease that is free, names the caller already because a reply was lost (R7), or has a dead owner (R13).
-- KEYS[1] and ARGV[1-11]: see epoch.lua
-- KEYS  2 node of the caller  3 highest fence of all leases (for a role: its record)  4 last grant of the caller
--       then per item: lease, result
-- ARGV  12 prefix of node keys  13 prefix of lease keys  14 channel to all  15 the message to send there if all are
--       granted  16 TTL of KEYS[4] in ms
-- reply  … fence, number of items  then one entry for each item that was not free, or is not granted: its index, from 1,
--        and  1, how: granted, 1 adopted or 2 takeover   2, owner: held   3 hold-off   4 no heartbeat
--        5 late   6, why: failed
local bar = barred()
if bar then return reply(bar) end
local out = reply('ok')
local alive = KIND.is_alive(KEYS[2])
local refusal
if LATE then refusal = 5 end
if not alive then refusal = 4 end
if HOLDING_OFF then refusal = 3 end

-- Grows with every grant, even if the server has lost grants or its clock was set back.
local FENCE = math.max(NOW_US, FLOOR_US + 1, (number(ARGV[4]) or 0) + 1, KIND.last_fence(KEYS[3]) + 1)
local FENCE_TEXT = exact(FENCE)
out[#out + 1] = FENCE
out[#out + 1] = (#KEYS - 4) / 2

-- Notes the fence once a call, before the first grant counts.
local noted = false
local function note()
  if noted then return end
  local unwritten = KIND.note_grant(KEYS[3], KEYS[4], FENCE_TEXT, ARGV[16])
  noted = not unwritten
  return unwritten
end

local function held_by(lease, owner)
  -- A clock that was set back would let a lease last longer than its TTL.
  local left = redis.call('PTTL', lease)
  if left < 0 or left > TTL_MS then redis.call('PEXPIRE', lease, TTL_MS) end
  return 2, owner
end

-- The indexes in KEYS of the leases that were not granted.
local refused = {}
local function tell(i, code, what)
  if code ~= 1 then refused[#refused + 1] = i end
  out[#out + 1] = {(i - 3) / 2, code, what}
end

-- Usually all leases are free, and one command for all costs much less than one for each. Without the ACL right to MSETNX
-- the leases are granted one by one.
local function take_all()
  if not KIND.takes_all_at_once or refusal or #KEYS == 4 then return false end
  local owners = {}
  for i = 5, #KEYS, 2 do owners[i - 4], owners[i - 3] = KEYS[i], ME end
  return redis.pcall('MSETNX', unpack(owners)) == 1
end

-- Deletes a lease whose fence cannot be written. No error may end the script in here: the remaining leases would have
-- no TTL.
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

-- The outcome of one lease: a code and its detail. nil when the lease was free and is granted.
local function acquire(lease, result)
  local owner = redis.pcall('GET', lease)
  if failed(owner) then return 6, owner.err end
  local how = (not owner and 0) or (owner == ME and 1) or 2
  if how == 2 and (HOLDING_OFF or not KIND.is_dead(owner)) then return held_by(lease, owner) end
  if refusal then return refusal end
  -- The fence first: if there is no memory for it, the lease is not granted.
  local unwritten = failed(redis.pcall('HSET', result, GRANTED, FENCE_TEXT)) or note()
  if unwritten then return 6, unwritten end
  local written = KIND.write_heartbeat()
  if failed(written) then return 6, written.err end
  local set = redis.pcall('SET', lease, ME, 'PX', ARGV[5])
  if failed(set) then return 6, set.err end
  KIND.succeed(result, owner)
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

-- One message names all granted leases, so that no instance has to read their owners. The caller has prepared the message
-- for the case that all are granted.
local n_took, message = (#KEYS - 4) / 2 - #refused, ARGV[15]
if n_took > 0 and #refused > 0 then
  local took, next_refused = {}, 1
  for i = 5, #KEYS, 2 do
    if refused[next_refused] == i then
      next_refused = next_refused + 1
    else
      took[#took + 1] = string.sub(KEYS[i], #ARGV[13] + 1)
    end
  end
  -- The prepared message names the sender and the database.
  local partial = cjson.decode(ARGV[15])
  partial.took = took
  message = cjson.encode(partial)
end
if n_took > 0 then redis.pcall('PUBLISH', ARGV[14], message) end
return out
