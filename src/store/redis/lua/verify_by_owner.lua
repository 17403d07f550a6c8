-- verify_by_owner: is each lease ours at this moment, the cheap way (FR-010)?
-- KEYS  from 2: leases
-- reply  … the places, counted from 1, of those that are not: verify says what became of them
-- Only for leases whose fence was compared in this epoch: renew_by_owner says why the name is enough then.
if EPOCH ~= NAMED then return reply('epoch') end
local out = reply('ok')
local owners = redis.call('MGET', unpack(KEYS, 2))
for i = 1, #KEYS - 1 do
  if owners[i] ~= ME then out[#out + 1] = i end
end
return out
