-- release: delete each lease that the caller holds under this fence (FR-003), then send the messages to the heirs.
-- KEYS  per item: lease, result
-- ARGV  1 instance  2 field of the fence  3 key of a leader's heartbeat, which goes with the role
--       4 number of items  then per item: fence  then pairs: channel, message
-- reply  per item  1 released   0 not ours
-- Needs no epoch, because it grants nothing. Raises the stored fence above this tenure, so that no renewal that is executed
-- later can bring it back.
local items = tonumber(ARGV[4])
local out, leases, ours = {}, {}, {}
for i = 1, items do leases[i] = KEYS[2 * i - 1] end
-- One MGET, because each command of a script has a fixed cost. A key of another type has no owner.
local owners = items > 0 and redis.call('MGET', unpack(leases)) or {}

-- 1 the caller's   0 missing, and not granted since   nil another's, or a later tenure
local function whose(result, fence, owner)
  local stored = redis.pcall('HGET', result, ARGV[2])
  if type(stored) == 'table' and stored.err then return end
  if (number(stored) or 0) > fence then return end
  if not owner then return 0 end
  if owner == ARGV[1] then return 1 end
end

local retired = {}
for i = 1, items do
  local found = whose(KEYS[2 * i], tonumber(ARGV[4 + i]), owners[i])
  if found then retired[#retired + 1] = i end
  if found == 1 then ours[#ours + 1] = leases[i] end
  out[i] = found or 0
end
-- The leases first: on a server out of memory a script may write only after it has deleted something.
if #ours > 0 then redis.call('DEL', unpack(ours)) end
if #ours > 0 and ARGV[3] ~= '' then redis.call('DEL', ARGV[3]) end
for _, i in ipairs(retired) do
  redis.pcall('HSET', KEYS[2 * i], ARGV[2], string.format('%.0f', tonumber(ARGV[4 + i]) + 1))
end
for i = 5 + items, #ARGV, 2 do redis.pcall('PUBLISH', ARGV[i], ARGV[i + 1]) end
return out
