-- publish: store and announce each result, but only under the lease it was polled under, and only if it is
-- newer than the stored one (G2). Results are ordered by (fence, start).
-- KEYS[1] and ARGV[1-11]: see epoch.lua
-- KEYS  per item from 2: lease, result
-- ARGV  per item from 12: fence, started_at_ms, channel, message, ok, status, error, duration_ms,
--       interval_ms, body, cert_days, cert_expiring
-- reply  … per item  1 stored, now or before, or a newer one is   2 fenced   {3, why} failed   4 the lease is missing, and was
--        not granted since
if EPOCH ~= NAMED then return reply('epoch') end
local out = reply('ok')

local leases = {}
for i = 2, #KEYS, 2 do leases[i / 2] = KEYS[i] end
-- One MGET, because each command of a script has a fixed cost.
local owners = #leases > 0 and redis.call('MGET', unpack(leases)) or {}

-- A stored start that is no number between 0 and 2^53 was written by another client, and is ignored.
local function start(text)
  local ms = tonumber(text)
  return ms and ms >= 0 and ms < 2^53 and ms
end

local function publish(lease, result, at, owner)
  local fence, started_at = ARGV[at], ARGV[at + 1]
  -- MGET also returns nil for a key of another type; GET returns its error.
  local odd = not owner and failed(redis.pcall('GET', lease))
  if odd then return {3, odd} end
  local stored = redis.pcall('HMGET', result, 'granted', 'fence', 'started_at_ms')
  if failed(stored) then return {3, stored.err} end
  -- The server has lost the lease and has not granted it since: the caller may reclaim it.
  if not owner and (number(stored[1]) or 0) <= tonumber(fence) then return 4 end
  if owner ~= ME or stored[1] ~= fence then return 2 end
  -- Not newer: only the reply was lost, or the request was delivered late, after newer results of this tenure.
  local newest = stored[2] == fence and start(stored[3])
  if newest and tonumber(started_at) <= newest then return 1 end
  local written = redis.pcall('HSET', result, 'fence', fence, 'instance', ME, 'ok', ARGV[at + 4],
    'status', ARGV[at + 5], 'error', ARGV[at + 6], 'started_at_ms', started_at,
    'duration_ms', ARGV[at + 7], 'interval_ms', ARGV[at + 8], 'body', ARGV[at + 9],
    'cert_days', ARGV[at + 10], 'cert_expiring', ARGV[at + 11])
  if failed(written) then return {3, written.err} end
  -- The first result of a tenure: the owner's call of last_polled may have failed.
  if stored[2] ~= fence then cancel_retirement(result) end
  redis.pcall('PUBLISH', ARGV[at + 2], ARGV[at + 3])
  return 1
end

local at = 12
for i = 2, #KEYS, 2 do
  out[#out + 1] = publish(KEYS[i], KEYS[i + 1], at, owners[i / 2])
  at = at + 12
end
return out
