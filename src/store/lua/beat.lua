-- beat: keep this instance's heartbeat (FR-006). Not refused in any epoch: being alive is no grant.
-- KEYS  2 node of the instance  3 drain set        ARGV  9 heartbeat_ttl_ms  10 weight  11 host
-- reply  … unbroken (1/0), weight written; or just the stamp when it arrived too late to count,
-- so that a beat executed after its sender has withdrawn cannot revive it
if LATE then return reply('late') end
local weight = ARGV[10]
-- A drain set of another type drains nobody; it must not stop a fleet.
if redis.pcall('SISMEMBER', KEYS[3], ME) == 1 or redis.pcall('SISMEMBER', KEYS[3], ARGV[11]) == 1 then
  weight = '0'
end
local unbroken = redis.call('EXISTS', KEYS[2])
-- What is there already can be kept without memory, and the leases with it.
if redis.pcall('GET', KEYS[2]) == weight then redis.call('PEXPIRE', KEYS[2], ARGV[9])
else redis.call('SET', KEYS[2], weight, 'PX', ARGV[9]) end
local out = reply('ok')
out[5], out[6] = unbroken, tonumber(weight)
return out
