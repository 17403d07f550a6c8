-- release_by_owner: give back each lease that is ours by its name, the cheap way, then tell those who wait.
-- KEYS  1 what this instance was granted last  then leases
-- ARGV  1 instance  2 the highest fence it had heard of  3 its floor, raised for this release
--       4 how many ms KEYS[1] lasts  then pairs: channel, message
-- reply  1, and the places, counted from 1, of those that were not ours   or  0: release has to say
-- Nothing was granted to this instance that it had not heard of when it asked: so a key with its name is the
-- tenure that it gives back, or one that it has given up before. Otherwise this may have come late, and the
-- name stand for a tenure that began since.
if not string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY this server is a replica')
end
local noted = redis.pcall('HMGET', KEYS[1], 'granted', 'released')
local granted, released = number(noted[1]), number(noted[2]) or 0
if not granted or granted > tonumber(ARGV[2]) then return {0} end
-- No renewal that was asked for before this can bring one of them back. Nor before a later one: this may be late.
released = string.format('%.0f', math.max(released, tonumber(ARGV[3])))
if type(redis.pcall('HSET', KEYS[1], 'released', released)) == 'table' then return {0} end
redis.call('PEXPIRE', KEYS[1], ARGV[4])

local out, ours = {1}, {}
local owners = redis.call('MGET', unpack(KEYS, 2))
for i = 1, #KEYS - 1 do
  if owners[i] == ARGV[1] then ours[#ours + 1] = KEYS[i + 1] else out[#out + 1] = i end
end
if #ours > 0 then redis.call('DEL', unpack(ours)) end
for i = 5, #ARGV, 2 do redis.pcall('PUBLISH', ARGV[i], ARGV[i + 1]) end
return out
