-- verify: is each lease ours in the store, under this fence, at this moment (FR-010)?
-- KEYS  per item from 2: lease, result             ARGV  per item from 12: fence
-- reply  … per item  1 held   2 missing   {3, owner} not ours   {4, why} failed
if EPOCH ~= NAMED then return reply('epoch') end
local out = reply('ok')

local function verify(lease, result, fence)
  local owner = redis.pcall('GET', lease)
  if failed(owner) then return {4, owner.err} end
  if not owner then return 2 end
  if owner ~= ME then return {3, owner} end
  local stored = redis.pcall('HGET', result, GRANTED)
  if failed(stored) then return {4, stored.err} end
  if (tonumber(stored) or 0) > fence then return {3, ''} end
  return 1
end

local arg = 12
for i = 2, #KEYS, 2 do
  out[#out + 1] = verify(KEYS[i], KEYS[i + 1], tonumber(ARGV[arg]))
  arg = arg + 1
end
return out
