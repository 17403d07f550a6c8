-- expiring: which leases are free, or will be soon unless they are renewed (R9)? Most are not: the answer is short.
-- KEYS  1 epoch  then the leases        ARGV  1 how many ms are soon
-- reply  their places, counted from 1
local longest = number(redis.pcall('HGET', KEYS[1], 'lease_ttl_ms'), TTL_MIN_MS, TTL_MAX_MS) or math.huge
local soon, out = tonumber(ARGV[1]), {}
for i = 2, #KEYS do
  local left = redis.call('PTTL', KEYS[i])
  -- A lease that lasts for ever, or too long, is named too: its reader cuts it short (read_capped).
  if left < soon or left > longest then out[#out + 1] = i - 1 end
end
return out
