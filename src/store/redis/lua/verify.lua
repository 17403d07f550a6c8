-- verify: does the caller hold each lease under this fence now (FR-010)?
-- KEYS[1] and ARGV[1-11]: see epoch.lua
-- KEYS  per item from 2: lease, result             ARGV  per item from 12: fence
-- reply  … per item  1 held   2 missing   {3, owner} not ours   {4, why} failed
local bar = barred() or (IS_SETTLING and 'settling')
if bar then return reply(bar) end
local out = reply('ok')

local leases = {}
for i = 2, #KEYS, 2 do leases[i / 2] = KEYS[i] end
-- One MGET, because each command of a script has a fixed cost.
local owners = #leases > 0 and redis.call('MGET', unpack(leases)) or {}

local function verify(lease, result, fence, owner)
  if not owner then
    -- MGET also returns nil for a key of another type; GET returns its error.
    local odd = redis.pcall('GET', lease)
    return failed(odd) and {4, odd.err} or 2
  end
  if owner ~= ME then return {3, owner} end
  local stored = redis.pcall('HGET', result, GRANTED)
  if failed(stored) then return {4, stored.err} end
  if (number(stored) or 0) > fence then return {3, ''} end
  return 1
end

local arg = 12
for i = 2, #KEYS, 2 do
  out[#out + 1] = verify(KEYS[i], KEYS[i + 1], tonumber(ARGV[arg]), owners[i / 2])
  arg = arg + 1
end
return out
