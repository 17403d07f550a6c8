-- rights: which commands that an instance needs may this user not run? The server checks the user's rights for each
-- command of a script. Leaves no key behind.
-- KEYS  1 a key of this trial's own  then one of each kind that is read and written: the server refuses the call
--       when one of them is not ours
-- reply  the names of the commands that were denied or are unknown
local probe = KEYS[1]
local denied = {}
local function try(command, ...)
  local answer = redis.pcall(command, ...)
  local err = type(answer) == 'table' and answer.err or ''
  for _, words in ipairs({'ACL failure in script', "user executing the script can't", 'nknown Redis command'}) do
    if string.find(err, words, 1, true) then
      denied[#denied + 1] = string.lower(command)
      return
    end
  end
end

-- A string that expires, so that commands for other types change nothing.
try('SET', probe, '1', 'PX', '1000')
try('HSET', probe, 'x', '1')
try('PEXPIRE', probe, '1000')
try('GET', probe)
try('MGET', probe)
try('STRLEN', probe)
try('GETRANGE', probe, '0', '1')
try('TYPE', probe)
try('EXISTS', probe)
try('HGET', probe, 'x')
try('HMGET', probe, 'x')
try('SISMEMBER', probe, 'x')
try('DEL', probe)
-- Last: before 7.0 nothing can be written any more after one of these.
try('PTTL', probe)
try('TIME')
try('INFO', 'replication')
return denied
