-- beat: a sign of life of the caller between two heartbeats (R16).
-- KEYS  1 info of the caller  2 its revocation        ARGV  1 how many signs of life it has given
-- reply  0 noted   1 not noted: the caller has no info, so its heartbeat is to be written again   else: the caller was
--        revoked, and its leases may be taken over from this server time in ms
-- Writes the info and not the heartbeat: all instances are told of each heartbeat, and nobody is told of this.
local revoked = number(redis.pcall('GET', KEYS[2]), 2)
if revoked then return revoked end
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
redis.call('HSET', KEYS[1], 'beats', ARGV[1])
return 0
