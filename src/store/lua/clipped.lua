-- clipped: read keys that expire, and cut short what a clock that was set back would keep for ages.
-- KEYS  1 epoch  then the keys to read        ARGV  1 the epoch's field that has the longest TTL in ms
-- reply  per key  its value, or false when there is none or it is no string
--        then     how many ms the one that ends first still has; -1 when there is none
local longest = tonumber(redis.pcall('HGET', KEYS[1], ARGV[1]))
local out, first = {}, -1
for i = 2, #KEYS do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) ~= 'string' then
    value = false
  else
    local left = redis.call('PTTL', KEYS[i])
    if longest and (left < 0 or left > longest) then
      redis.pcall('PEXPIRE', KEYS[i], longest)
      left = longest
    end
    if left >= 0 and (first < 0 or left < first) then first = left end
  end
  out[i - 1] = value
end
out[#KEYS] = first
return out
