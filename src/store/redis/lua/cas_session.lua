-- cas_session: write or remove a session, but only if it is still what it was.
-- KEYS  1 session        ARGV  1 what it was  2 whether it was there  3 what it is to be  4 whether it is to be
-- reply  1 done   0 another client has changed it meanwhile
local now = redis.call('GET', KEYS[1])
if ARGV[2] == '1' then
  if now ~= ARGV[1] then return 0 end
elseif now then
  return 0
end
if ARGV[4] == '1' then redis.call('SET', KEYS[1], ARGV[3], 'KEEPTTL')
else redis.call('DEL', KEYS[1]) end
return 1
