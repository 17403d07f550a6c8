-- epoch: in which epoch is the store, and does it grant leases yet (R5, R14)? Begins a new epoch after a loss of data.
-- Included in front of every script that grants, renews, verifies or publishes, and of heartbeat.
-- KEYS[1]  <prefix>:epoch
-- ARGV     1 instance  2 epoch named  3 suspect  4 floor_us  5 lease_ttl_ms  6 margin_ms
--          7 not_after_us  8 new_fleet  9 suffix  10 prefix of leaders' heartbeats  11 how many ms one lasts
--          the script's own arguments begin at ARGV[12]
-- Endpoint leases share one TTL, and the fence of each is in its result: 9 and 10 are empty, and 11 is 1 if the caller polls
-- only under a fresh verification (R15). Each role
-- has a TTL and a term of its own, in fields of KEYS[1] that end with the suffix: a colon and the role's name.
-- A reply begins with  status, epoch, hold_off_ms, server_us, data epoch; after the status 'revoked' also  revoked_until_ms
-- The data epoch (field 'born') is the epoch that began with the last loss of data.
local ME, NAMED, TTL_MS = ARGV[1], number(ARGV[2]) or 0, number(ARGV[5], TTL_MIN_MS, TTL_MAX_MS)
-- R14: the fleet would have to agree on a TTL that no configuration can have.
if not TTL_MS then return redis.error_reply('BADTTL the life of a lease cannot be ' .. ARGV[5] .. ' ms') end
local NOT_AFTER_US = tonumber(ARGV[7])
local HOLD_US = (TTL_MS + tonumber(ARGV[6])) * 1000
local SUFFIX = ARGV[9]
-- R16: whether this instance was revoked: the server time in ms from which its leases may be taken over. Roles are not revoked.
local REVOCATIONS = string.sub(KEYS[1], 1, -6) .. 'revoked:'
local REVOKED = SUFFIX == '' and number(redis.pcall('GET', REVOCATIONS .. ME)) or nil
local KEEPS_R15 = ARGV[10] == '' and ARGV[11] == '1'
-- GRANTED is the field with the last fence. CONFIRMED, which only roles have, is the field that says whether the role's TTL
-- was confirmed after a loss of data. lease_kind.lua has the other differences between endpoint leases and roles.
local GRANTED, CONFIRMED = 'granted', nil
if SUFFIX ~= '' then GRANTED, CONFIRMED = 'term' .. SUFFIX, 'confirmed' .. SUFFIX end

-- R5 for roles: after a loss of data only earlier candidates know the TTL of the earlier leader. Until one of them has
-- confirmed the TTL, or the role was granted again, the hold-off is at least that of the default TTL (30 s + margin).
local UNKNOWN_HOLD_MS = 31000

local time = redis.call('TIME')
local NOW_US = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- Lua prints large numbers rounded; fences and times must be exact.
local function exact(number) return string.format('%.0f', number) end

local LATE = NOT_AFTER_US > 0 and NOW_US > NOT_AFTER_US
local EPOCH, SINCE_US, FLOOR_US, DATA_EPOCH
do
  -- Read in every call, because a connection can outlive a promotion.
  local info = redis.call('INFO', 'replication')
  local replid = string.match(info, 'master_replid:(%w+)')
  if not replid then return redis.error_reply('NOREPLID this server does not tell its master_replid') end
  if not string.find(info, 'role:master', 1, true) then return redis.error_reply('READONLY this server is a replica') end
  local seen = redis.pcall('HMGET', KEYS[1], 'epoch', 'replid', 'since_ms', 'floor_us', 'lease_ttl_ms' .. SUFFIX, 'born')
  if seen.err and string.find(seen.err, 'WRONGTYPE', 1, true) then return redis.error_reply('NOHASH ' .. KEYS[1]) end
  if seen.err then return seen end
  EPOCH, FLOOR_US = number(seen[1], 1), number(seen[4])
  SINCE_US, DATA_EPOCH = number(seen[3]), number(seen[6], 1, EPOCH)
  local agreed_ms = number(seen[5], TTL_MIN_MS, TTL_MAX_MS)
  -- Some other client has overwritten a field: its old value is lost.
  local is_malformed = (seen[1] and not EPOCH) or (seen[3] and not SINCE_US) or (seen[4] and not FLOOR_US)
    or (seen[5] and not agreed_ms) or (seen[6] and not DATA_EPOCH)
  FLOOR_US, SINCE_US = FLOOR_US or 0, SINCE_US and SINCE_US * 1000
  local ttl_unconfirmed, ttl_overwritten = false, seen[5] and not agreed_ms
  if CONFIRMED then
    local role = redis.call('HMGET', KEYS[1], GRANTED, CONFIRMED)
    ttl_unconfirmed = ttl_overwritten or role[2] == '0' or not (number(role[1], 1) or role[2])
  end
  local own_hold_us = HOLD_US
  if ttl_unconfirmed then HOLD_US = math.max(HOLD_US, UNKNOWN_HOLD_MS * 1000) end
  -- A role may be new and have no TTL yet. Endpoint leases without a TTL have lost their epoch.
  local is_known = not is_malformed and EPOCH and SINCE_US and seen[2] and (agreed_ms or CONFIRMED)
  -- A readable TTL counts even if another field is malformed, so that damage does not let an instance change the TTL.
  if (is_known or is_malformed) and agreed_ms and agreed_ms ~= TTL_MS then
    -- After a loss of data the first caller sets the TTL. An earlier instance with a longer TTL replaces it, as long as
    -- no lease can have been granted.
    local granted_nothing = is_known and seen[2] == replid and NOW_US - SINCE_US < math.max(agreed_ms, ttl_unconfirmed and UNKNOWN_HOLD_MS or 0) * 1000
    if not (NAMED > 0 and TTL_MS > agreed_ms and granted_nothing) then
      return {'timing', agreed_ms, 'lease_ttl_ms' .. SUFFIX}
    end
    is_known = false
  end
  local is_suspected = ARGV[3] == '1' and EPOCH == NAMED
  -- The caller has seen a later epoch than the stored one: the server has lost it.
  local epoch_forgotten = is_known and NAMED > EPOCH
  if not is_known or seen[2] ~= replid or is_suspected or epoch_forgotten then
    -- A number that no earlier epoch can have had, even if the server has lost them all.
    EPOCH = math.max((EPOCH or 0) + 1, NAMED + 1, NOW_US)
    SINCE_US = NOW_US
    -- A suspicion also begins an epoch, but no data was lost.
    if not is_known or seen[2] ~= replid or epoch_forgotten or not DATA_EPOCH then DATA_EPOCH = EPOCH end
    -- With --new-fleet there is no hold-off. The flag is ignored if any field of an epoch exists, and in a late request,
    -- which may be executed after a loss of data (R4).
    local is_unwritten = not (seen[1] or seen[2] or seen[3])
    if is_unwritten and ARGV[8] == '1' and NAMED == 0 and not LATE then SINCE_US = NOW_US - HOLD_US end
    redis.call('HSET', KEYS[1], 'epoch', exact(EPOCH), 'replid', replid,
      'since_ms', exact(math.floor(SINCE_US / 1000)), 'born', exact(DATA_EPOCH), 'floor_us', exact(FLOOR_US),
      'lease_ttl_ms' .. SUFFIX, ARGV[5], 'margin_ms' .. SUFFIX, ARGV[6])
    -- Some other client has overwritten the role's TTL: only earlier candidates know it.
    if ttl_unconfirmed and ttl_overwritten then redis.call('HSET', KEYS[1], CONFIRMED, '0') end
  elseif NOW_US < SINCE_US then
    -- The server's clock was set back: the hold-off starts again.
    SINCE_US = NOW_US
    redis.call('HSET', KEYS[1], 'since_ms', exact(math.floor(SINCE_US / 1000)))
  end
  if is_known and not agreed_ms then
    redis.call('HSET', KEYS[1], 'lease_ttl_ms' .. SUFFIX, ARGV[5], 'margin_ms' .. SUFFIX, ARGV[6])
  end
  -- The caller was a candidate with this TTL before the last loss of data.
  if ttl_unconfirmed and NAMED > 0 and NAMED < (DATA_EPOCH or EPOCH) then
    redis.call('HSET', KEYS[1], CONFIRMED, '1')
    HOLD_US = own_hold_us
  end
end

local HOLD_LEFT_US = math.max(0, SINCE_US + HOLD_US - NOW_US)
local HOLDING_OFF = HOLD_LEFT_US > 0

do
  -- The caller has seen a later time or fence than the server's clock: later fences must be above it. During a hold-off
  -- other instances may have seen even later ones, so the floor is raised by the hold-off. Only then: fences would
  -- otherwise run away from the clock.
  local floor = number(ARGV[4]) or 0
  local beyond = floor + (HOLDING_OFF and HOLD_US or 0)
  if floor > NOW_US and beyond > FLOOR_US then
    FLOOR_US = beyond
    -- pcall: a server out of memory grants nothing, but must still renew.
    redis.pcall('HSET', KEYS[1], 'floor_us', exact(FLOOR_US))
  end
end

local function reply(status)
  return {status, EPOCH, math.ceil(HOLD_LEFT_US / 1000), NOW_US, DATA_EPOCH or EPOCH, status == 'revoked' and REVOKED or nil}
end

-- Why a script decides nothing: the caller named another epoch (R5), or was revoked (R16).
local function barred()
  if EPOCH ~= NAMED then return 'epoch' end
  if REVOKED then return 'revoked' end
end

-- R15: an earlier epoch may have had an owner that this server has forgotten, and whose last verification still counts.
-- Nobody else is confirmed until it has ended. As LeaseDuration::revocation.
local VERIFICATION_MS = math.min(math.max(TTL_MS / 30, 1000), TTL_MS / 3)
local REVOCATION_US = (VERIFICATION_MS * 1.03 + 100) * 1000
-- A suspicion begins an epoch, too, but no data was lost: then only what is left of the wait after an earlier loss counts.
local IS_OF_LOSS = not DATA_EPOCH or EPOCH - DATA_EPOCH < REVOCATION_US
local IS_SETTLING = KEEPS_R15 and IS_OF_LOSS and NOW_US - SINCE_US < REVOCATION_US

-- The error of one item (wrong type, out of memory) must not fail the others.
local function failed(result) return type(result) == 'table' and result.err end

-- Gives a lease another TTL. PEXPIREAT costs a fifth less than PEXPIRE, because the server stores the end of a key. A
-- user that lacks the right to PEXPIREAT falls back to PEXPIRE.
local try, LASTS, UNTIL = redis.pcall, 'PEXPIREAT', exact(math.floor(NOW_US / 1000) + TTL_MS)
local function prolong(lease)
  local lasts = try(LASTS, lease, UNTIL)
  if lasts ~= 1 and LASTS == 'PEXPIREAT' and failed(lasts) then
    LASTS, UNTIL = 'PEXPIRE', ARGV[5]
    lasts = try(LASTS, lease, UNTIL)
  end
  return lasts
end

-- Cancels the TTL that retire gave the result: the endpoint is polled again (last_polled.lua does the same). Sets a TTL of a
-- hundred years, because PERSIST would require one more ACL right.
local function cancel_retirement(result)
  if redis.call('PTTL', result) > 0 then redis.pcall('PEXPIRE', result, 3155760000000) end
end
