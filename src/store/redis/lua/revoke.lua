-- revoke: give back leases of an instance that is dead.
-- KEYS  1 its node key  then per item: lease, result      ARGV  1 the dead instance  2 certain
-- reply  how many were its; -1 when it has a heartbeat and its death is not certain
if not string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY this server is a replica')
end
-- Looked at here and not before: an instance can come back between two calls.
if ARGV[2] == '1' then redis.call('DEL', KEYS[1])
elseif redis.call('EXISTS', KEYS[1]) == 1 then return -1 end
local count = 0
for i = 2, #KEYS, 2 do
  local owner = redis.pcall('GET', KEYS[i])
  -- A lease of another type is nobody's; any other refusal would leave its leases to a dead instance unsaid.
  if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then return owner end
  if owner == ARGV[1] then
    redis.call('DEL', KEYS[i])
    local granted = number(redis.pcall('HGET', KEYS[i + 1], 'granted'))
    if granted then redis.pcall('HSET', KEYS[i + 1], 'granted', string.format('%.0f', granted + 1)) end
    count = count + 1
  end
end
return count
