-- epoch: which life of the store is this, and does it grant anything yet (R5, R14)?
-- Stands in front of every script that grants, renews, verifies or publishes, and of the heartbeat.
-- KEYS[1]  <prefix>:epoch
-- ARGV     1 instance  2 epoch named  3 suspect  4 floor_us  5 lease_ttl_ms  6 margin_ms
--          7 not_after_us  8 new_fleet  9 suffix  10 prefix of leaders' heartbeats  11 how many ms one lasts
--          the script's own arguments begin at ARGV[12]
-- All polls agree on one timing, and each keeps its fence with its result: 9 and 10 are empty, and 11 does not count. Each role has
-- its own timing and term in the epoch's hash. Those fields end with a colon and the role's name: that is the suffix.
-- A reply begins with  status, epoch, hold_off_ms, server_us, the epoch that began with the last loss of memory
local ME, NAMED, TTL_MS = ARGV[1], number(ARGV[2]) or 0, number(ARGV[5], TTL_MIN_MS, TTL_MAX_MS)
-- R14: a life that no checked configuration has is not written, or nobody else could agree on it.
if not TTL_MS then return redis.error_reply('BADTTL the life of a lease cannot be ' .. ARGV[5] .. ' ms') end
local NOT_AFTER_US = tonumber(ARGV[7])
local HOLD_US = (TTL_MS + tonumber(ARGV[6])) * 1000
local SUFFIX = ARGV[9]
-- What differs between polls and roles here; lease_kind.lua has what differs in grants and renewals. The field with the
-- last fence, and the field that tells whether a role's own timing was confirmed after a loss of memory.
local GRANTED, CONFIRMED = 'granted', nil
if SUFFIX ~= '' then GRANTED, CONFIRMED = 'term' .. SUFFIX, 'confirmed' .. SUFFIX end

-- R5 for roles: after a loss of memory only the candidates from before it know how long a leader of that time may lead.
-- Until one of them has confirmed the TTL, or the role has been led again, the hold-off is that of the default TTL (30 s).
local UNKNOWN_HOLD_MS = 31000

local time = redis.call('TIME')
local NOW_US = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- Lua prints large numbers rounded; fences and times must stay exact.
local function exact(number) return string.format('%.0f', number) end

local LATE = NOT_AFTER_US > 0 and NOW_US > NOT_AFTER_US
local EPOCH, SINCE_US, FLOOR_US, BORN
do
  -- The server's own word, asked every time: connections outlive promotions and restarts.
  local info = redis.call('INFO', 'replication')
  local replid = string.match(info, 'master_replid:(%w+)')
  if not replid then return redis.error_reply('NOREPLID this server does not tell its master_replid') end
  if not string.find(info, 'role:master', 1, true) then return redis.error_reply('READONLY this server is a replica') end
  local seen = redis.pcall('HMGET', KEYS[1], 'epoch', 'replid', 'since_ms', 'floor_us', 'lease_ttl_ms' .. SUFFIX, 'born')
  if seen.err and string.find(seen.err, 'WRONGTYPE', 1, true) then return redis.error_reply('NOHASH ' .. KEYS[1]) end
  if seen.err then return seen end
  EPOCH, FLOOR_US = number(seen[1], 1), number(seen[4])
  SINCE_US, BORN = number(seen[3]), number(seen[6], 1, EPOCH)
  local agreed = number(seen[5], TTL_MIN_MS, TTL_MAX_MS)
  -- A value that no script writes was written by a stranger, over the value that stood there: the old value is lost.
  local malformed = (seen[1] and not EPOCH) or (seen[3] and not SINCE_US) or (seen[4] and not FLOOR_US)
    or (seen[5] and not agreed) or (seen[6] and not BORN)
  FLOOR_US, SINCE_US = FLOOR_US or 0, SINCE_US and SINCE_US * 1000
  local unconfirmed, untimed = false, seen[5] and not agreed
  if CONFIRMED then
    local role = redis.call('HMGET', KEYS[1], GRANTED, CONFIRMED)
    unconfirmed = untimed or role[2] == '0' or not (number(role[1], 1) or role[2])
  end
  local own_hold_us = HOLD_US
  if unconfirmed then HOLD_US = math.max(HOLD_US, UNKNOWN_HOLD_MS * 1000) end
  -- The epoch is known although a role is new to it and has no timing yet. A fleet without a timing is not known.
  local known = not malformed and EPOCH and SINCE_US and seen[2] and (agreed or CONFIRMED)
  -- A timing that is still readable counts, even if a field beside it is malformed: no stranger may name another.
  if (known or malformed) and agreed and agreed ~= TTL_MS then
    -- After a loss of memory the first instance that asks sets the timing. An instance from before, with leases that
    -- last longer, corrects it as long as nothing can have been granted.
    local granted_nothing = known and seen[2] == replid and NOW_US - SINCE_US < math.max(agreed, unconfirmed and UNKNOWN_HOLD_MS or 0) * 1000
    if not (NAMED > 0 and TTL_MS > agreed and granted_nothing) then
      return {'timing', agreed, 'lease_ttl_ms' .. SUFFIX}
    end
    known = false
  end
  local suspected = ARGV[3] == '1' and EPOCH == NAMED
  -- The caller has seen a later epoch than this server remembers: the server has forgotten one.
  local outlived = known and NAMED > EPOCH
  if not known or seen[2] ~= replid or suspected or outlived then
    -- A number that no earlier life can have had, even if this one remembers nothing.
    EPOCH = math.max((EPOCH or 0) + 1, NAMED + 1, NOW_US)
    SINCE_US = NOW_US
    -- A suspicion begins an epoch, too, but nothing is forgotten by it.
    if not known or seen[2] ~= replid or outlived or not BORN then BORN = EPOCH end
    -- The operator says that this fleet is new (--new-fleet). That is wrong where anything is left of an epoch, and a
    -- request that comes late may come after a loss of memory (R4).
    local untouched = not (seen[1] or seen[2] or seen[3])
    if untouched and ARGV[8] == '1' and NAMED == 0 and not LATE then SINCE_US = NOW_US - HOLD_US end
    redis.call('HSET', KEYS[1], 'epoch', exact(EPOCH), 'replid', replid,
      'since_ms', exact(math.floor(SINCE_US / 1000)), 'born', exact(BORN), 'floor_us', exact(FLOOR_US),
      'lease_ttl_ms' .. SUFFIX, ARGV[5], 'margin_ms' .. SUFFIX, ARGV[6])
    -- A stranger has written over the TTL of a role: only the candidates from before know it.
    if unconfirmed and untimed then redis.call('HSET', KEYS[1], CONFIRMED, '0') end
  elseif NOW_US < SINCE_US then
    -- Time went back: the hold-off starts again.
    SINCE_US = NOW_US
    redis.call('HSET', KEYS[1], 'since_ms', exact(math.floor(SINCE_US / 1000)))
  end
  if known and not agreed then
    redis.call('HSET', KEYS[1], 'lease_ttl_ms' .. SUFFIX, ARGV[5], 'margin_ms' .. SUFFIX, ARGV[6])
  end
  -- The caller was here before the last loss of memory, with this TTL.
  if unconfirmed and NAMED > 0 and NAMED < (BORN or EPOCH) then
    redis.call('HSET', KEYS[1], CONFIRMED, '1')
    HOLD_US = own_hold_us
  end
end

local HOLD_LEFT_US = math.max(0, SINCE_US + HOLD_US - NOW_US)
local HOLDING_OFF = HOLD_LEFT_US > 0

do
  -- The caller has seen a later time or fence than this clock shows: grants must grow beyond it. After
  -- a loss of memory others may have seen more; but not with every grant, or fences would run away.
  local floor = number(ARGV[4]) or 0
  local beyond = floor + (HOLDING_OFF and HOLD_US or 0)
  if floor > NOW_US and beyond > FLOOR_US then
    FLOOR_US = beyond
    -- Without memory for it nothing is granted either, and held leases must go on.
    redis.pcall('HSET', KEYS[1], 'floor_us', exact(FLOOR_US))
  end
end

local function reply(status)
  return {status, EPOCH, math.ceil(HOLD_LEFT_US / 1000), NOW_US, BORN or EPOCH}
end

-- One item that errs (wrong type, out of memory) must not spoil the others.
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

-- Cancels the end that retire gave the result: the endpoint is polled again. The new end is a hundred years away, because
-- PERSIST would be one right more.
local function stays(result)
  if redis.call('PTTL', result) > 0 then redis.pcall('PEXPIRE', result, 3155760000000) end
end
