-- expiring: which leases are free, or end within ARGV[1] ms unless they are renewed (R9)?
-- KEYS  1 epoch  then the leases        ARGV  1 ms
-- reply  their indexes, from 1
local longest = number(redis.pcall('HGET', KEYS[1], 'lease_ttl_ms'), TTL_MIN_MS, TTL_MAX_MS) or math.huge
local soon, out = tonumber(ARGV[1]), {}
for i = 2, #KEYS do
  local left = redis.call('PTTL', KEYS[i])
  -- Also names a lease without a TTL or with one too long: read_capped then caps it.
  if left < soon or left > longest then out[#out + 1] = i - 1 end
end
return out
