-- release: give back each lease that is ours under this fence (FR-003), then tell those who wait.
-- KEYS  per item: lease, result
-- ARGV  1 instance  2 field of the fence  3 key of a leader's heartbeat, which goes with the role
--       4 number of items  then per item: fence  then pairs: channel, message
-- reply  per item  1 released   0 not ours
-- Needs no epoch: it only ever takes away. The stored fence is raised beyond this tenure, so that no
-- renewal still on its way can bring it back.
if not string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY this server is a replica')
end
local items = tonumber(ARGV[4])
local out, leases, ours = {}, {}, {}
for i = 1, items do leases[i] = KEYS[2 * i - 1] end
-- All in one call: each costs more than what it does. A key of another type is nobody's.
local owners = items > 0 and redis.call('MGET', unpack(leases)) or {}

-- 1 ours   0 nobody's, and not granted since   nil another's, or of a later tenure
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
-- The leases first: a server that is out of memory lets a script write once it has taken something away.
if #ours > 0 then redis.call('DEL', unpack(ours)) end
if #ours > 0 and ARGV[3] ~= '' then redis.call('DEL', ARGV[3]) end
for _, i in ipairs(retired) do
  redis.pcall('HSET', KEYS[2 * i], ARGV[2], string.format('%.0f', tonumber(ARGV[4 + i]) + 1))
end
for i = 5 + items, #ARGV, 2 do redis.pcall('PUBLISH', ARGV[i], ARGV[i + 1]) end
return out
