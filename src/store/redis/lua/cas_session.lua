-- cas_session: write or delete a session if its value is the expected one (compare and set).
-- KEYS  1 session        ARGV  1 expected value  2 whether it is expected to exist  3 new value  4 whether it is to exist
-- reply  1 done   0 another client has changed it
local now = redis.call('GET', KEYS[1])
if ARGV[2] == '1' then
  if now ~= ARGV[1] then return 0 end
elseif now then
  return 0
end
if ARGV[4] == '1' then redis.call('SET', KEYS[1], ARGV[3], 'KEEPTTL')
else redis.call('DEL', KEYS[1]) end
return 1
