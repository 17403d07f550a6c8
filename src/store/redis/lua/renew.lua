-- renew: extend each lease that the caller holds under this fence; write a lease again that the server has lost (R6).
-- KEYS[1] and ARGV[1-11]: see epoch.lua
-- KEYS  2 last grant of the caller  3 highest fence of all leases  then per item: lease, result
-- ARGV  12 TTL of KEYS[2] in ms  13 highest fence that the caller knows  then per item: fence, may_reclaim
-- reply  … per item  1 extended   2 reclaimed   {3, owner or ''} not ours   {4} late   {5, why} failed
-- Allowed during a hold-off: a renewal is no grant.
local bar = barred()
if bar then return reply(bar) end
local out = reply('ok')

local function put_back(lease, result)
  cancel_retirement(result)
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
  -- A later grant or a release has ended this tenure, even if the lease names the caller or is missing.
  if granted > fence then return {3, ''} end
  if not owner then
    if not may_reclaim then return {3, ''} end
    if LATE or KIND.may_be_released(KEYS[2]) then return {4} end
  end
  if granted < fence or not owner then
    local unwritten = KIND.count_as_granted(KEYS[3], KEYS[2], fence) or failed(redis.pcall('HSET', result, GRANTED, fence_text))
    if unwritten then return {5, unwritten} end
  end
  local written = KIND.write_heartbeat()
  if failed(written) then return {5, written.err} end
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
