-- renew_by_owner: extend each lease that names the caller as its owner, without comparing fences. The fast path of renew.
-- KEYS[1] and ARGV[1-11]: see epoch.lua
-- KEYS  from 2: leases
-- reply  … the indexes, from 1, of the leases that do not name the caller: the caller sends these to renew
-- Only for leases whose fence a grant or a renewal has compared in this epoch. The store has lost no data since then, and a
-- release or the grant of another instance removes the caller's name. So a lease that names the caller is its tenure,
-- or a later one of its own.
local bar = barred()
if bar then return reply(bar) end
local out = reply('ok')
local owners = redis.call('MGET', unpack(KEYS, 2))
for i = 1, #KEYS - 1 do
  if owners[i] ~= ME or prolong(KEYS[i + 1]) ~= 1 then out[#out + 1] = i end
end
return out
