-- number: what a script of ours has written as a number, or nothing. Stands in front of every script that reads one.
-- Everything else counts as missing. Lua itself takes 'nan', 'inf', '-5', '0x10', ' 5 ' and '1e300' for numbers, and
-- each of them would be compared with, added to and written back. No script writes 9e15 or more: near 2^53 a double
-- loses its last digits.
local function number(text, least, most)
  if type(text) ~= 'string' or #text > 16 or string.find(text, '%D') then return nil end
  local it = tonumber(text)
  if it and it >= (least or 0) and it <= (most or 8999999999999999) then return it end
end

-- The shortest and the longest life of a lease that a configuration can have, in ms (LeaseDuration::TTL_MIN, LeaseDuration::TTL_MAX).
local TTL_MIN_MS, TTL_MAX_MS = 500, 3600000

