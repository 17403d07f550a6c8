-- heartbeat: write the heartbeat of the caller (FR-006). Allowed in any epoch: a heartbeat is no grant.
-- KEYS[1] and ARGV[1-11]: see epoch.lua
-- KEYS  2 node of the caller  3 drain set
-- ARGV  12 heartbeat_ttl_ms  13 weight  14 host  15 the revocation that the caller has obeyed, or 0
--       16 info of the caller, or nothing  then pairs: field, value of the info
-- reply  … unbroken (1/0), weight written; or just the stamp when the call is late: executed after its sender has withdrawn
--        its heartbeat, it would write the heartbeat again
if LATE then return reply('late') end
-- R16: an instance comes back when it has ended everything that it held, and when nobody has to wait for that any more.
if REVOKED then
  -- The server's clock was set back: the revocation must not last longer for that.
  if REVOKED * 1000 > NOW_US + REVOCATION_US then
    REVOKED = math.ceil((NOW_US + REVOCATION_US) / 1000)
    redis.call('SET', REVOCATIONS .. ME, exact(REVOKED), 'PX', math.ceil(HOLD_US / 1000) + tonumber(ARGV[12]))
  end
  if ARGV[15] ~= exact(REVOKED) or NOW_US < REVOKED * 1000 then return reply('revoked') end
  redis.call('DEL', REVOCATIONS .. ME)
end
local weight = ARGV[13]
-- A key of another type in place of the drain set is ignored: it must not stop the fleet.
if redis.pcall('SISMEMBER', KEYS[3], ME) == 1 or redis.pcall('SISMEMBER', KEYS[3], ARGV[14]) == 1 then
  weight = '0'
end
-- The longest heartbeat TTL of the fleet: a node key with more than that left is from before the server's clock was set
-- back (read_capped.lua).
local longest = number(redis.call('HGET', KEYS[1], 'heartbeat_ttl_ms'), 1, TTL_MAX_MS) or 0
if tonumber(ARGV[12]) > longest then redis.pcall('HSET', KEYS[1], 'heartbeat_ttl_ms', ARGV[12]) end
local unbroken = REVOKED and 0 or redis.call('EXISTS', KEYS[2])
-- PEXPIRE needs no memory: a full server keeps the heartbeat, and the leases with it.
if redis.pcall('GET', KEYS[2]) == weight then redis.call('PEXPIRE', KEYS[2], ARGV[12])
else redis.call('SET', KEYS[2], weight, 'PX', ARGV[12]) end
-- Only operators read the info. A key of another type in its place must not spoil the heartbeat, nor must a right that is
-- missing: the right to a key of KEYS is checked before the script runs.
if #ARGV > 16 and not failed(redis.pcall('HSET', unpack(ARGV, 16))) then redis.pcall('PEXPIRE', ARGV[16], ARGV[12]) end
local out = reply('ok')
out[6], out[7] = unbroken, tonumber(weight)
return out
