-- heartbeat: keep this instance's heartbeat (FR-006). Not refused in any epoch: being alive is no grant.
-- KEYS  2 node of the instance  3 drain set        ARGV  12 heartbeat_ttl_ms  13 weight  14 host
-- reply  … unbroken (1/0), weight written; or just the stamp when it arrived too late to count,
-- so that a heartbeat executed after its sender has withdrawn cannot revive it
if LATE then return reply('late') end
local weight = ARGV[13]
-- A drain set of another type drains nobody; it must not stop a fleet.
if redis.pcall('SISMEMBER', KEYS[3], ME) == 1 or redis.pcall('SISMEMBER', KEYS[3], ARGV[14]) == 1 then
  weight = '0'
end
-- The longest heartbeat of the fleet: a node key with more than that left is from before a clock was
-- set back (read_capped.lua).
local longest = number(redis.call('HGET', KEYS[1], 'heartbeat_ttl_ms'), 1, TTL_MAX_MS) or 0
if tonumber(ARGV[12]) > longest then redis.pcall('HSET', KEYS[1], 'heartbeat_ttl_ms', ARGV[12]) end
local unbroken = redis.call('EXISTS', KEYS[2])
-- PEXPIRE needs no memory: a full server keeps the heartbeat, and the leases with it.
if redis.pcall('GET', KEYS[2]) == weight then redis.call('PEXPIRE', KEYS[2], ARGV[12])
else redis.call('SET', KEYS[2], weight, 'PX', ARGV[12]) end
local out = reply('ok')
out[6], out[7] = unbroken, tonumber(weight)
return out
