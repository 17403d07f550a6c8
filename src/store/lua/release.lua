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

local function release(lease, result, fence, owner)
  local stored = redis.pcall('HGET', result, ARGV[2])
  if type(stored) == 'table' and stored.err then return 0 end
  if (tonumber(stored) or 0) > fence then return 0 end
  if owner and owner ~= ARGV[1] then return 0 end
  if owner then ours[#ours + 1] = lease end
  redis.pcall('HSET', result, ARGV[2], string.format('%.0f', fence + 1))
  return owner and 1 or 0
end

for i = 1, items do
  out[i] = release(leases[i], KEYS[2 * i], tonumber(ARGV[4 + i]), owners[i])
end
if #ours > 0 then redis.call('DEL', unpack(ours)) end
if #ours > 0 and ARGV[3] ~= '' then redis.call('DEL', ARGV[3]) end
for i = 5 + items, #ARGV, 2 do redis.pcall('PUBLISH', ARGV[i], ARGV[i + 1]) end
return out
