-- renew_by_owner: give each lease that is still ours another TTL, the cheap way.
-- KEYS  from 2: leases
-- reply  … the places, counted from 1, of those that are not ours any more: renew says what became of them
-- Only for leases whose fence was compared in this epoch, by a grant or a renewal. Since then the store has
-- forgotten nothing, and a key with our name is a tenure of ours: a release or another's grant takes the
-- name away, and a later grant of our own is ours, too.
if EPOCH ~= NAMED then return reply('epoch') end
local out = reply('ok')
local owners = redis.call('MGET', unpack(KEYS, 2))
for i = 1, #KEYS - 1 do
  if owners[i] ~= ME or prolong(KEYS[i + 1]) ~= 1 then out[#out + 1] = i end
end
return out
