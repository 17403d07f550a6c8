-- drain: add an instance or host to the drain set, unless no instance would be left to poll.
-- KEYS  1 drain set  then the node keys of the live instances
-- ARGV  1 the name  2 whether to drain even the last instance  then per node: its id, its host
-- reply  1 drained   0 was drained already   -1 no instance would be left   an error: the caller lacks an ACL right
local denied
local function is_left(node, id, host)
  if id == ARGV[1] or host == ARGV[1] then return false end
  if redis.call('SISMEMBER', KEYS[1], id) == 1 or redis.call('SISMEMBER', KEYS[1], host) == 1 then return false end
  local weight = redis.pcall('GET', node)
  -- A key of another type is no instance. Any other error would make a live instance look dead.
  if type(weight) == 'table' and not string.find(weight.err, 'WRONGTYPE', 1, true) then denied = weight end
  -- A malformed weight counts as 1: the instance is alive.
  return type(weight) == 'string' and (tonumber(weight) or 1) > 0
end

local left = ARGV[2] == '1'
for i = 2, #KEYS do left = left or is_left(KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]) end
if denied and not left then return denied end
if not left then return -1 end
return redis.call('SADD', KEYS[1], ARGV[1])
