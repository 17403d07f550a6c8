-- number: reads a stored number. Included in front of every script that reads one.
-- Accepts only what our scripts write: decimal digits, below 9e15, because near 2^53 a double loses its last digits. Any
-- other value counts as missing. Lua's tonumber also accepts 'nan', 'inf', '-5', '0x10', ' 5 ' and '1e300'.
local function number(text, least, most)
  if type(text) ~= 'string' or #text > 16 or string.find(text, '%D') then return nil end
  local it = tonumber(text)
  if it and it >= (least or 0) and it <= (most or 8999999999999999) then return it end
end

-- The shortest and the longest lease TTL that a configuration can have (LeaseDuration::TTL_MIN, LeaseDuration::TTL_MAX).
local TTL_MIN_MS, TTL_MAX_MS = 500, 3600000

