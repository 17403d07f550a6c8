-- revoke: delete the leases of a dead instance.
-- KEYS  1 its node key  then per item: lease, result      ARGV  1 the dead instance  2 certain  3 its info
-- reply  how many it held; -1 when it has a heartbeat and its death is not certain
-- Checked in the same call: the instance can come back between two calls.
if ARGV[2] == '1' then redis.call('DEL', KEYS[1])
elseif redis.call('EXISTS', KEYS[1]) == 1 then return -1 end
redis.pcall('DEL', ARGV[3])
local count = 0
for i = 2, #KEYS, 2 do
  local owner = redis.pcall('GET', KEYS[i])
  -- A key of another type has no owner. Any other error is returned, because the leases would stay with the dead instance.
  if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then return owner end
  if owner == ARGV[1] then
    redis.call('DEL', KEYS[i])
    local granted = number(redis.pcall('HGET', KEYS[i + 1], 'granted'))
    if granted then redis.pcall('HSET', KEYS[i + 1], 'granted', string.format('%.0f', granted + 1)) end
    count = count + 1
  end
end
return count
