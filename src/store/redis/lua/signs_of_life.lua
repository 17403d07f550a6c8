-- signs_of_life: read what tells whether instances are alive (R16).
-- KEYS  per instance: info, revocation        ARGV  per instance: its channel
-- reply  per instance  {signs of life given, subscribers of its channel, server time in ms from which its leases may be taken
--        over}; -1 for each that is not known
-- An instance without a number of signs of life cannot be revoked. This user may lack the right to PUBSUB.
local counts = redis.pcall('PUBSUB', 'NUMSUB', unpack(ARGV))
local out = {}
for i = 1, #ARGV do
  local beats = number(redis.pcall('HGET', KEYS[2 * i - 1], 'beats'))
  local revoked = number(redis.pcall('GET', KEYS[2 * i]))
  out[i] = {beats or -1, not counts.err and tonumber(counts[2 * i]) or -1, revoked or -1}
end
return out
