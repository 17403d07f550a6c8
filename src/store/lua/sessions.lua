-- sessions: read each session without choking on one that is no string, or enormous.
-- KEYS  the session keys      ARGV  1 most bytes
-- reply  per key  the value   {1, type} not a string   {2, bytes} too large   false vanished
local out = {}
for i, key in ipairs(KEYS) do
  local bytes = redis.pcall('STRLEN', key)
  if type(bytes) == 'table' then
    out[i] = {1, redis.call('TYPE', key).ok}
  elseif bytes > tonumber(ARGV[1]) then
    out[i] = {2, bytes}
  else
    out[i] = redis.call('GET', key)
  end
end
return out
