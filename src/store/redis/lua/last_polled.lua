-- last_polled: when was each endpoint last polled? Cancels the TTL that retire gave its result.
-- KEYS  per item: result
-- reply  per item  started_at_ms, or nothing
local out = {}
for i, result in ipairs(KEYS) do
  local started_at = redis.pcall('HGET', result, 'started_at_ms')
  out[i] = type(started_at) == 'string' and started_at or ''
  -- As cancel_retirement of epoch.lua: sets a TTL of a hundred years, because PERSIST would require one more ACL right.
  if redis.call('PTTL', result) > 0 then redis.pcall('PEXPIRE', result, 3155760000000) end
end
return out
