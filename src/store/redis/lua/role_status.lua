-- role_status: leader, heartbeat and term of roles. Caps the TTL of a lease that a clock set back would keep too long.
-- KEYS  1 epoch  then the roles' keys        ARGV  1 prefix of heartbeats  2 extra_ms of a heartbeat  then the suffixes
-- reply  now_us  then per role  {leader or '', left_ms, written_ms or -1, stale (1/0), term, ttl_ms}; -1 for an unknown TTL
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local out = {now_us}

local function status(key, suffix)
  local seen = redis.call('HMGET', KEYS[1], 'lease_ttl_ms' .. suffix, 'term' .. suffix)
  local ttl, term = number(seen[1], TTL_MIN_MS, TTL_MAX_MS), number(seen[2]) or 0
  local leader = redis.pcall('GET', key)
  if type(leader) ~= 'string' then return {'', 0, -1, 0, term, ttl or -1} end
  local left = redis.call('PTTL', key)
  if ttl and (left < 0 or left > ttl) then
    redis.pcall('PEXPIRE', key, ttl)
    left = ttl
  end
  local written_ms = number(redis.pcall('GET', ARGV[1] .. leader))
  local stale = written_ms and ttl and now_us / 1000 - written_ms > ttl + tonumber(ARGV[2])
  return {leader, left, written_ms or -1, stale and 1 or 0, term, ttl or -1}
end

local record = redis.pcall('HMGET', KEYS[1], 'epoch')
if record.err and string.find(record.err, 'WRONGTYPE', 1, true) then return redis.error_reply('NOHASH ' .. KEYS[1]) end
for i = 2, #KEYS do out[i] = status(KEYS[i], ARGV[i + 1]) end
return out
