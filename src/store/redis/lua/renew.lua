-- renew: keep each lease that is still ours under this fence; put back one that was forgotten (R6).
-- KEYS  2 what this instance was granted last  3 the highest fence of all  then per item: lease, result
-- ARGV  12 how many ms KEYS[2] lasts  13 the highest fence this instance has heard of
--       then per item: fence, may_reclaim
-- reply  … per item  1 extended   2 reclaimed   {3, owner or ''} not ours   {4} late   {5, why} failed
-- Goes on during a hold-off: a running tenure is no grant.
if EPOCH ~= NAMED then return reply('epoch') end
local out = reply('ok')

-- What was asked for before the last release of this instance may be about what was released (release_by_owner). Notes that
-- somebody has spoilt say nothing any more: once it is late, and then as if there were none.
local function may_be_released()
  if BEATS ~= '' then return false end
  local released = redis.pcall('HGET', KEYS[2], 'released')
  if failed(released) then redis.pcall('DEL', KEYS[2]) end
  return failed(released) or (number(released) or 0) > tonumber(ARGV[4])
end

-- What this server had forgotten, of the lease or of its fence, counts as granted: a release that comes late must
-- not take it for what was there before (release_by_owner), and no later fence may be lower.
local function count_as_granted(fence)
  if BEATS ~= '' then return end
  local least = math.max(fence, tonumber(ARGV[13]))
  if (number(redis.pcall('GET', KEYS[3])) or 0) < least then
    local unwritten = failed(redis.pcall('SET', KEYS[3], exact(least)))
    if unwritten then return unwritten end
  end
  if (number(redis.pcall('HGET', KEYS[2], 'granted')) or 0) >= least then return end
  return note_granted(KEYS[2], exact(least), ARGV[12])
end

local function put_back(lease, result)
  stays(result)
  local set = redis.pcall('SET', lease, ME, 'NX', 'PX', TTL_MS)
  if failed(set) then return {5, set.err} end
  return 2
end

local function renew(lease, result, fence_text, may_reclaim)
  local fence = tonumber(fence_text)
  local owner = redis.pcall('GET', lease)
  if failed(owner) then return {5, owner.err} end
  if owner and owner ~= ME then return {3, owner} end
  local stored = redis.pcall('HGET', result, GRANTED)
  if failed(stored) then return {5, stored.err} end
  local granted = number(stored) or 0
  -- A later grant or a release has ended this tenure, even if the key bears our name or none.
  if granted > fence then return {3, ''} end
  if not owner then
    if not may_reclaim then return {3, ''} end
    if LATE or may_be_released() then return {4} end
  end
  if granted < fence or not owner then
    local unwritten = count_as_granted(fence) or failed(redis.pcall('HSET', result, GRANTED, fence_text))
    if unwritten then return {5, unwritten} end
  end
  local beaten = beat()
  if failed(beaten) then return {5, beaten.err} end
  if owner then
    local kept = prolong(lease)
    if failed(kept) then return {5, kept.err} end
    return 1
  end
  return put_back(lease, result)
end

local arg = 14
for i = 4, #KEYS, 2 do
  out[#out + 1] = renew(KEYS[i], KEYS[i + 1], ARGV[arg], ARGV[arg + 1] == '1')
  arg = arg + 2
end
return out
