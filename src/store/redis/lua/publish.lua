-- publish: store and announce each result, but only under the lease it was polled under, and only if it is
-- newer than the stored one (G2). Results are ordered by (fence, start). Decides the verdict with the same step, so that
-- each change of it is announced exactly once.
-- KEYS[1] and ARGV[1-11]: see epoch.lua
-- KEYS  per item from 2: lease, result
-- ARGV  12 key and channel of the changes  13 database
--       per item from 14: fence, started_at_ms, channel, message, ok, status, error, duration_ms,
--       interval_ms, body, fail_after, ok_after, address, and what the caller saw stored last, or nothing: fence,
--       started_at_ms, 'verdict since_ms before_ms failures successes'; cert_days, cert_expiring
-- reply  … per item  1 or {1, verdict, since_ms, before_ms, failures, successes} stored, now or before, or a newer one
--        is: 1 if the verdict and its counts are still as the caller saw them   2 fenced   {3, why} failed   4 the lease
--        is missing, and was not granted since
local bar = barred()
if bar then return reply(bar) end
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

-- The verdict with its counts, as it is told: verdict ('-' for none), since_ms, before_ms, failures, successes. What
-- another client may have written counts as none, or as 0.
local function state(verdict, since, before, failures, successes)
  local is_known = verdict == 'ok' or verdict == 'failing'
  return {1, is_known and verdict or '-', number(since) or 0, number(before) or 0, number(failures, 0, 2^31) or 0,
    number(successes, 0, 2^31) or 0}
end

-- Whether the stored state is older than what the caller saw stored: the server has lost something.
local function is_behind(stored, at)
  if not (stored[4] or stored[7]) then return true end
  local fence, known = number(stored[2]) or 0, tonumber(ARGV[at + 13])
  return fence < known or (fence == known and (start(stored[3]) or -1) < tonumber(ARGV[at + 14]))
end

-- Announces a change. A right that is missing must not keep the result from being stored.
local function announce(now, result, at)
  local function quoted(text) return text == '' and 'null' or cjson.encode(text) end
  local status = ARGV[at + 5]
  local json = table.concat({'{"endpoint":', quoted(string.match(result, '[^:]*$')), ',"address":', quoted(ARGV[at + 12]),
    ',"verdict":"', now[2], '","since_ms":', exact(now[3]), ',"before_ms":', now[4] > 0 and exact(now[4]) or 'null',
    ',"failures":', exact(now[5]), ',"status":', status == '' and 'null' or status, ',"error":', quoted(ARGV[at + 6]),
    ',"fence":', ARGV[at], ',"instance":', quoted(ME), ',"db":', ARGV[13], '}'})
  redis.pcall('XADD', ARGV[12], 'MAXLEN', '~', '10000', '*', 'change', json)
  redis.pcall('PUBLISH', ARGV[12], json)
end

-- As VerdictState::after.
local function judge(stored, result, at)
  local is_ok, seen_by = ARGV[at + 4] == '1', ARGV[at + 13]
  if is_ok and stored[4] == 'ok' and stored[7] == '0' and stored[2] == seen_by and stored[3] == ARGV[at + 14] then return 1 end
  local last = state(unpack(stored, 4, 8))
  if seen_by ~= '' and is_behind(stored, at) then last = state(string.match(ARGV[at + 15], '(%S+) (%d+) (%d+) (%d+) (%d+)')) end
  local now = {1, last[2], last[3], last[4], is_ok and 0 or last[5] + 1, 0}
  if is_ok and last[2] == 'failing' then now[6] = last[6] + 1 end
  if is_ok and (last[2] ~= 'failing' or now[6] >= tonumber(ARGV[at + 11])) then now[2] = 'ok' end
  if not is_ok and now[5] >= tonumber(ARGV[at + 10]) then now[2] = 'failing' end
  local is_other = now[2] ~= last[2]
  if is_other then now[3], now[4], now[6] = tonumber(ARGV[at + 1]), last[3], 0 end
  local counts = {'failures', exact(now[5]), 'successes', exact(now[6])}
  if now[2] == '-' then redis.pcall('HSET', result, unpack(counts))
  else redis.pcall('HSET', result, 'verdict', now[2], 'since_ms', exact(now[3]), 'before_ms', exact(now[4]), unpack(counts)) end
  -- That a new endpoint is ok is no change.
  if is_other and (now[2] == 'failing' or last[2] ~= '-') then announce(now, result, at) end
  return now
end

local function publish(lease, result, at, owner)
  local fence, started_at = ARGV[at], ARGV[at + 1]
  -- MGET also returns nil for a key of another type; GET returns its error.
  local odd = not owner and failed(redis.pcall('GET', lease))
  if odd then return {3, odd} end
  local stored = redis.pcall('HMGET', result, 'granted', 'fence', 'started_at_ms', 'verdict', 'since_ms', 'before_ms',
    'failures', 'successes')
  if failed(stored) then return {3, stored.err} end
  -- The server has lost the lease and has not granted it since: the caller may reclaim it.
  if not owner and (number(stored[1]) or 0) <= tonumber(fence) then return 4 end
  if owner ~= ME or stored[1] ~= fence then return 2 end
  -- Not newer: only the reply was lost, or the request was delivered late, after newer results of this tenure.
  local newest = stored[2] == fence and start(stored[3])
  if newest and tonumber(started_at) <= newest then return state(unpack(stored, 4, 8)) end
  local written = redis.pcall('HSET', result, 'fence', fence, 'instance', ME, 'ok', ARGV[at + 4],
    'status', ARGV[at + 5], 'error', ARGV[at + 6], 'started_at_ms', started_at,
    'duration_ms', ARGV[at + 7], 'interval_ms', ARGV[at + 8], 'body', ARGV[at + 9],
    'cert_days', ARGV[at + 16], 'cert_expiring', ARGV[at + 17])
  if failed(written) then return {3, written.err} end
  -- The first result of a tenure: the owner's call of last_polled may have failed.
  if stored[2] ~= fence then cancel_retirement(result) end
  redis.pcall('PUBLISH', ARGV[at + 2], ARGV[at + 3])
  return judge(stored, result, at)
end

local at = 14
for i = 2, #KEYS, 2 do
  out[#out + 1] = publish(KEYS[i], KEYS[i + 1], at, owners[i / 2])
  at = at + 18
end
return out
