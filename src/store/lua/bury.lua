-- bury: give back leases of an instance that is certainly dead.
-- KEYS  per item: lease, result        ARGV  1 the dead instance        reply  how many were its
if not string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY this server is a replica')
end
local count = 0
for i = 1, #KEYS, 2 do
  if redis.pcall('GET', KEYS[i]) == ARGV[1] then
    redis.call('DEL', KEYS[i])
    local granted = tonumber(redis.pcall('HGET', KEYS[i + 1], 'granted'))
    if granted then redis.pcall('HSET', KEYS[i + 1], 'granted', string.format('%.0f', granted + 1)) end
    count = count + 1
  end
end
return count
