-- lease_kind: what differs between a poll (a lease on an endpoint) and a role, in grants and renewals.
-- Stands behind epoch, in front of acquire and renew: both call the entries of KIND and test nothing themselves.
-- ARGV  10 prefix of leaders' heartbeats, empty for polls  11 how many ms such a heartbeat lasts
local KIND

-- Notes the highest fence that this instance was granted (release_by_owner). Written before a grant counts. A key of
-- another type was put there by a stranger, and is replaced.
local function note_granted(grants, fence_text, lasts_ms)
  local unwritten = failed(redis.pcall('HSET', grants, 'granted', fence_text))
  if unwritten and string.find(unwritten, 'WRONGTYPE', 1, true) then
    redis.pcall('DEL', grants)
    unwritten = failed(redis.pcall('HSET', grants, 'granted', fence_text))
  end
  redis.pcall('PEXPIRE', grants, lasts_ms)
  return unwritten
end

if ARGV[10] == '' then
  local dead = {}
  KIND = {
    -- Free leases are granted by one MSETNX.
    takes_all_at_once = true,
    -- Only an instance with a heartbeat is granted anything.
    is_alive = function(node) return redis.call('EXISTS', node) == 1 end,
    -- The highest fence of all stands in a key of its own, so that none has to be looked up. A release has raised that
    -- of its tenure by one more.
    last_fence = function(highest) return (number(redis.pcall('GET', highest)) or 0) + 1 end,
    note_grant = function(highest, grants, fence_text, lasts_ms)
      return failed(redis.pcall('SET', highest, fence_text)) or note_granted(grants, fence_text, lasts_ms)
    end,
    -- R13: the rights of an owner end before its heartbeat does.
    is_dead = function(owner)
      if dead[owner] == nil then dead[owner] = redis.call('EXISTS', ARGV[12] .. owner) == 0 end
      return dead[owner]
    end,
    -- The node key is the heartbeat: heartbeat.lua writes it.
    beat = function() return true end,
    succeed = function() end,
    -- A renewal sent before the last release of this instance may be about a released lease (release_by_owner). Malformed
    -- notes prove nothing: the first renewal is late, and the next finds no notes.
    may_be_released = function(grants)
      local released = redis.pcall('HGET', grants, 'released')
      if failed(released) then redis.pcall('DEL', grants) end
      return failed(released) or (number(released) or 0) > tonumber(ARGV[4])
    end,
    -- A lease or fence that this server had forgotten counts as granted now: a late release must not take it for the
    -- tenure before (release_by_owner), and no later fence may be lower.
    count_as_granted = function(highest, grants, fence)
      local least = math.max(fence, tonumber(ARGV[13]))
      if (number(redis.pcall('GET', highest)) or 0) < least then
        local unwritten = failed(redis.pcall('SET', highest, exact(least)))
        if unwritten then return unwritten end
      end
      if (number(redis.pcall('HGET', grants, 'granted')) or 0) >= least then return end
      return note_granted(grants, exact(least), ARGV[12])
    end,
  }
else
  local BEATS, BEAT_MS = ARGV[10], tonumber(ARGV[11])
  KIND = {
    takes_all_at_once = false,
    -- A leader's heartbeat begins with the grant.
    is_alive = function() return true end,
    -- A role's last fence is its term, in its record.
    last_fence = function(record) return number(redis.call('HGET', record, GRANTED)) or 0 end,
    note_grant = function() end,
    -- R13: a leader's heartbeat may have been deleted. So only a heartbeat that is there and too old proves a death; a
    -- role without any ends with its TTL.
    is_dead = function(owner)
      local beaten = number(redis.pcall('GET', BEATS .. owner))
      return beaten and NOW_US / 1000 - beaten > BEAT_MS
    end,
    -- R13: every grant and renewal of a role writes the leader's heartbeat first. One key serves all roles of an
    -- instance: it lasts as long as the longest of them needs.
    beat = function()
      local lasts = math.max(redis.call('PTTL', BEATS .. ME), BEAT_MS)
      return redis.pcall('SET', BEATS .. ME, exact(math.floor(NOW_US / 1000)), 'PX', lasts)
    end,
    -- A leader deletes its predecessor's heartbeat. A predecessor that leads other roles writes it again.
    succeed = function(record, owner)
      local predecessor = redis.pcall('HGET', record, 'leader' .. SUFFIX)
      for _, it in ipairs({not failed(predecessor) and predecessor or ME, owner or ME}) do
        if it ~= ME then redis.call('DEL', BEATS .. it) end
      end
      redis.pcall('HSET', record, 'leader' .. SUFFIX, ME)
    end,
    may_be_released = function() return false end,
    count_as_granted = function() end,
  }
end

