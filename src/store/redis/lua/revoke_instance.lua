-- revoke_instance: bar an instance from everything but coming back as a newcomer (R16). Takes no lease from anybody.
-- KEYS  1 epoch  2 node of the suspect  3 its info  4 its revocation  5 number of revocations in the last minute
-- ARGV  1 hint: heartbeat, subscriber or operator  2 signs of life that the caller has seen  3 channel of the suspect
--       4 most revocations in a minute  5 not_after_us
-- reply  {'revoked' or 'already', ms until its leases may be taken over}  or  {why not}: gone, unable, alive, hold-off, late,
--        limit
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
if tonumber(ARGV[5]) > 0 and now_us > tonumber(ARGV[5]) then return {'late'} end
if redis.call('EXISTS', KEYS[2]) == 0 then return {'gone'} end
local revoked = number(redis.pcall('GET', KEYS[4]))
if revoked then return {'already', math.max(0, revoked - now_ms)} end
-- R15: only an instance that counts its signs of life stops when its verification ends.
local beats = number(redis.pcall('HGET', KEYS[3], 'beats'))
if not beats then return {'unable'} end
-- Nobody could take the leases over during a hold-off. And the server has just lost its data: everybody looks dead.
local epoch = redis.pcall('HMGET', KEYS[1], 'replid', 'since_ms', 'lease_ttl_ms', 'margin_ms', 'heartbeat_ttl_ms')
local ttl_ms = not epoch.err and number(epoch[3], TTL_MIN_MS, TTL_MAX_MS)
local since_ms, margin_ms = not epoch.err and number(epoch[2]), not epoch.err and number(epoch[4])
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
if not (ttl_ms and since_ms and margin_ms) or epoch[1] ~= replid or now_ms < since_ms + ttl_ms + margin_ms then return {'hold-off'} end
-- Checked in the same call: the instance can come back between two calls.
if ARGV[1] ~= 'operator' and beats ~= number(ARGV[2]) then return {'alive'} end
if ARGV[1] == 'subscriber' then
  local counted = redis.pcall('PUBSUB', 'NUMSUB', ARGV[3])
  if counted.err or tonumber(counted[2]) ~= 0 then return {'alive'} end
end
-- An operator may revoke as many as there are.
if ARGV[1] ~= 'operator' then
  if (number(redis.pcall('GET', KEYS[5])) or 0) >= tonumber(ARGV[4]) then return {'limit'} end
  local left = redis.call('PTTL', KEYS[5])
  local count = (left > 0 and number(redis.pcall('GET', KEYS[5])) or 0) + 1
  redis.call('SET', KEYS[5], count, 'PX', left > 0 and left or 60000)
end
-- As LeaseDuration::revocation.
local verification_ms = math.min(math.max(ttl_ms / 30, 1000), ttl_ms / 3)
local wait_ms = math.ceil(verification_ms * 1.03) + 100
-- It lasts until the node key and all leases have ended, because neither is renewed any more.
local heartbeat_ttl_ms = number(epoch[5], 1, TTL_MAX_MS) or ttl_ms
redis.call('SET', KEYS[4], string.format('%.0f', now_ms + wait_ms), 'PX', wait_ms + math.max(ttl_ms, heartbeat_ttl_ms) + margin_ms)
-- Changes nothing, but all instances are told that the node key was written, and read when the suspect's rights end (R9).
local left = redis.call('PTTL', KEYS[2])
if left > 0 then redis.call('PEXPIRE', KEYS[2], left) end
return {'revoked', wait_ms}
