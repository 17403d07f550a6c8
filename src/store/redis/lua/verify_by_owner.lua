-- verify_by_owner: does each lease name the caller as its owner now (FR-010)? The fast path of verify.
-- KEYS[1] and ARGV[1-11]: see epoch.lua
-- KEYS  from 2: leases
-- reply  … the indexes, from 1, of the leases that do not name the caller: the caller sends these to verify
-- Only for leases whose fence was compared in this epoch: renew_by_owner says why the name is enough then.
local bar = barred() or (IS_SETTLING and 'settling')
if bar then return reply(bar) end
local out = reply('ok')
local owners = redis.call('MGET', unpack(KEYS, 2))
for i = 1, #KEYS - 1 do
  if owners[i] ~= ME then out[#out + 1] = i end
end
return out
