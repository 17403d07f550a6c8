-- release_by_owner: delete each lease that names the caller as its owner, then send the messages to the heirs. The fast path
-- of release: compares no fences.
-- KEYS  1 last grant of the caller  then leases
-- ARGV  1 instance  2 highest fence that the caller knew  3 its floor, raised for this release
--       4 TTL of KEYS[1] in ms  then pairs: channel, message
-- reply  1, and the indexes, from 1, of the leases that do not name the caller   or  0: the caller must use release
-- Allowed if the store has granted the caller no fence above ARGV[2]. Then a lease that names the caller is the tenure to
-- release, or one that the caller has given up before. Otherwise this call may be late, and the lease may be a tenure
-- that began after it was sent.
local noted = redis.pcall('HMGET', KEYS[1], 'granted', 'released')
local granted, released = number(noted[1]), number(noted[2]) or 0
if not granted or granted > tonumber(ARGV[2]) then return {0} end
-- No renewal sent before this release can bring a lease back (KIND.may_be_released). The maximum, because this release may
-- be executed after a later one.
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
