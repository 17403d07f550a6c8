-- epoch: which life of the store is this, and does it grant anything yet (R5, R14)?
-- Stands in front of every script that grants, renews, verifies, publishes or beats.
-- KEYS[1]  <prefix>:epoch
-- ARGV     1 instance  2 epoch named  3 suspect  4 floor_us  5 lease_ttl_ms  6 margin_ms
--          7 not_after_us  8 new_fleet  9 suffix  10 prefix of leaders' heartbeats  11 how many ms one lasts
--          the verb's own arguments begin at ARGV[12]
-- Polls agree on one timing and have their fences elsewhere: 9 and 10 are empty, 11 is zero. Each role has
-- its own timing and term in the epoch's hash, in fields with its name behind a colon: that is the suffix.
-- A reply begins with  status, epoch, hold_off_ms, server_us, the epoch that began with the last loss of memory
local ME, NAMED, TTL_MS = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])
local NOT_AFTER_US = tonumber(ARGV[7])
local HOLD_US = (TTL_MS + tonumber(ARGV[6])) * 1000
local SUFFIX, BEATS, BEAT_MS = ARGV[9], ARGV[10], tonumber(ARGV[11])
local GRANTED = SUFFIX == '' and 'granted' or 'term' .. SUFFIX

-- R5 for roles: after a loss of memory only who was there before knows how long a leader of that time may lead. Until
-- one of them has confirmed the TTL, or somebody has led, nothing is granted for as long as the default TTL (30 s) takes.
local UNKNOWN_HOLD_MS = 31000

local time = redis.call('TIME')
local NOW_US = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- Lua prints large numbers rounded; fences and times must stay exact.
local function exact(number) return string.format('%.0f', number) end

local EPOCH, SINCE_US, FLOOR_US, BORN
do
  -- The server's own word, asked every time: connections outlive promotions and restarts.
  local info = redis.call('INFO', 'replication')
  local replid = string.match(info, 'master_replid:(%w+)')
  if not replid then return redis.error_reply('NOREPLID this server does not tell its master_replid') end
  if not string.find(info, 'role:master', 1, true) then return redis.error_reply('READONLY this server is a replica') end
  local seen = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'since_ms', 'floor_us', 'lease_ttl_ms' .. SUFFIX, 'born')
  EPOCH, FLOOR_US, BORN = tonumber(seen[1]), tonumber(seen[4]) or 0, tonumber(seen[6])
  SINCE_US = tonumber(seen[3]) and tonumber(seen[3]) * 1000
  local agreed = tonumber(seen[5])
  local unconfirmed = false
  if SUFFIX ~= '' then
    local role = redis.call('HMGET', KEYS[1], GRANTED, 'confirmed' .. SUFFIX)
    unconfirmed = not role[1] and not role[2]
  end
  local own_hold_us = HOLD_US
  if unconfirmed then HOLD_US = math.max(HOLD_US, UNKNOWN_HOLD_MS * 1000) end
  -- A role is new to a store until somebody has named its timing; a fleet is not known without one.
  local known = EPOCH and SINCE_US and seen[2] and (agreed or SUFFIX ~= '')
  if known and agreed and agreed ~= TTL_MS then
    -- After a loss of memory whoever asks first sets the timing. Who was here before, with leases that
    -- last longer, corrects it as long as nothing can have been granted.
    local granted_nothing = seen[2] == replid and NOW_US - SINCE_US < math.max(agreed, unconfirmed and UNKNOWN_HOLD_MS or 0) * 1000
    if not (NAMED > 0 and TTL_MS > agreed and granted_nothing) then
      return {'timing', agreed, 'lease_ttl_ms' .. SUFFIX}
    end
    known = false
  end
  local suspected = ARGV[3] == '1' and EPOCH == NAMED
  -- Somebody was here in a later epoch than this server remembers: it has forgotten one.
  local outlived = known and NAMED > EPOCH
  if not known or seen[2] ~= replid or suspected or outlived then
    -- A number that no earlier life can have had, even if this one remembers nothing.
    EPOCH = math.max((EPOCH or 0) + 1, NAMED + 1, NOW_US)
    SINCE_US = NOW_US
    -- A suspicion begins an epoch, too, but nothing is forgotten by it.
    if not known or seen[2] ~= replid or outlived or not BORN then BORN = EPOCH end
    if not known and ARGV[8] == '1' and NAMED == 0 then SINCE_US = NOW_US - HOLD_US end
    redis.call('HSET', KEYS[1], 'epoch', exact(EPOCH), 'replid', replid,
      'since_ms', exact(math.floor(SINCE_US / 1000)), 'born', exact(BORN),
      'lease_ttl_ms' .. SUFFIX, ARGV[5], 'margin_ms' .. SUFFIX, ARGV[6])
  elseif NOW_US < SINCE_US then
    -- Time went back: the hold-off starts again.
    SINCE_US = NOW_US
    redis.call('HSET', KEYS[1], 'since_ms', exact(math.floor(SINCE_US / 1000)))
  end
  if known and not agreed then
    redis.call('HSET', KEYS[1], 'lease_ttl_ms' .. SUFFIX, ARGV[5], 'margin_ms' .. SUFFIX, ARGV[6])
  end
  -- It was here before the last loss of memory, with this TTL.
  if unconfirmed and NAMED > 0 and NAMED < (BORN or EPOCH) then
    redis.call('HSET', KEYS[1], 'confirmed' .. SUFFIX, '1')
    HOLD_US = own_hold_us
  end
end

local HOLD_LEFT_US = math.max(0, SINCE_US + HOLD_US - NOW_US)
local HOLDING_OFF = HOLD_LEFT_US > 0

do
  -- Somebody has seen a later time or fence than this clock shows: grants must grow beyond it. After
  -- a loss of memory others may have seen more; but not with every grant, or fences would run away.
  local floor = tonumber(ARGV[4])
  local beyond = floor + (HOLDING_OFF and HOLD_US or 0)
  if floor > NOW_US and beyond > FLOOR_US then
    FLOOR_US = beyond
    -- Without memory for it nothing is granted either, and what is held must go on.
    redis.pcall('HSET', KEYS[1], 'floor_us', exact(FLOOR_US))
  end
end

local LATE = NOT_AFTER_US > 0 and NOW_US > NOT_AFTER_US

local function reply(status)
  return {status, EPOCH, math.ceil(HOLD_LEFT_US / 1000), NOW_US, BORN or EPOCH}
end

-- One item that errs (wrong type, out of memory) must not spoil the others.
local function failed(result) return type(result) == 'table' and result.err end

-- R13 for roles: a leader's heartbeat is written by whatever grants or keeps the role, and before it.
-- One key for all roles of an instance: it lasts as long as the longest of them needs.
local function beat()
  if BEATS == '' then return true end
  local lasts = math.max(redis.call('PTTL', BEATS .. ME), BEAT_MS)
  return redis.pcall('SET', BEATS .. ME, exact(math.floor(NOW_US / 1000)), 'PX', lasts)
end

-- What this instance was granted last (free): written before a grant counts. A key of another type is nobody's but ours.
local function note_granted(grants, fence_text, lasts_ms)
  local unwritten = failed(redis.pcall('HSET', grants, 'granted', fence_text))
  if unwritten and string.find(unwritten, 'WRONGTYPE', 1, true) then
    redis.pcall('DEL', grants)
    unwritten = failed(redis.pcall('HSET', grants, 'granted', fence_text))
  end
  redis.pcall('PEXPIRE', grants, lasts_ms)
  return unwritten
end

-- Gives a lease another TTL. To say until when costs a fifth less than to say for how long, because that is what a server
-- makes of it; but it is a right that one can do without.
local try, LASTS, UNTIL = redis.pcall, 'PEXPIREAT', exact(math.floor(NOW_US / 1000) + TTL_MS)
local function prolong(lease)
  local lasts = try(LASTS, lease, UNTIL)
  if lasts ~= 1 and LASTS == 'PEXPIREAT' and failed(lasts) then
    LASTS, UNTIL = 'PEXPIRE', ARGV[5]
    lasts = try(LASTS, lease, UNTIL)
  end
  return lasts
end

-- What is polled again does not end any more (retire). A hundred years, because PERSIST would be one right more.
local function stays(result)
  if redis.call('PTTL', result) > 0 then redis.pcall('PEXPIRE', result, 3155760000000) end
end
