-- read_capped: read keys that expire. Caps a TTL that a clock set back has made too long.
-- KEYS  1 epoch  then the keys to read
-- ARGV  1 the epoch's field that has the longest TTL in ms
--       then nothing, or per key: a key whose number ends it sooner, at that server time in ms (R16)
-- reply  per key  its value, or false when there is none or it is no string; then how many ms it has left
-- A longest TTL out of range was written by another client, and is ignored: it would delete the keys of live instances.
local longest = number(redis.pcall('HGET', KEYS[1], ARGV[1]), TTL_MIN_MS, TTL_MAX_MS)
local values = redis.call('MGET', unpack(KEYS, 2))
local ends = #ARGV > 1 and redis.call('MGET', unpack(ARGV, 2)) or {}
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local out = {}
for i, value in ipairs(values) do
  local left = 0
  if value then
    left = redis.call('PTTL', KEYS[i + 1])
    if longest and (left < 0 or left > longest) then
      redis.pcall('PEXPIRE', KEYS[i + 1], longest)
      left = longest
    end
    local ends_ms = number(ends[i])
    if ends_ms and (left < 0 or ends_ms - now_ms < left) then left = math.max(0, ends_ms - now_ms) end
    if left == 0 and ends_ms then value = false end
  end
  out[2 * i - 1], out[2 * i] = value, left
end
return out
