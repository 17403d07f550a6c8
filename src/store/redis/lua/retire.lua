-- retire: give the results of endpoints that are no longer polled a TTL.
-- KEYS  per item: lease, result             ARGV  1 the TTL in ms
-- Skips held leases. An instance that acquires the lease again cancels the TTL (last_polled). The next fence is above the
-- last one even without the result: the TTL ends after the server's clock has passed the last fence.
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000

for i = 1, #KEYS, 2 do
  local left = redis.call('PTTL', KEYS[i + 1])
  local granted = number(redis.pcall('HGET', KEYS[i + 1], 'granted')) or 0
  local lasts = math.max(granted / 1000 - now_ms, 0) + tonumber(ARGV[1])
  if redis.call('EXISTS', KEYS[i]) == 0 and (left == -1 or left > lasts) then
    redis.pcall('PEXPIRE', KEYS[i + 1], string.format('%.0f', lasts))
  end
end
return 0
