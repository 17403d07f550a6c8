-- lease_kind: the differences between endpoint leases and roles, in grants and renewals.
-- Included after epoch and in front of acquire and renew, which call the entries of KIND.
-- KEYS[1] and ARGV[1-11]: see epoch.lua. ARGV[10], the prefix of leaders' heartbeats, is empty for endpoint leases.
local KIND

-- Notes the highest fence that this instance was granted (release_by_owner). Written before a grant counts. Replaces a key
-- of another type, which another client has written.
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
    -- The highest fence of all leases has a key of its own. + 1, because a release raises the stored fence of its
    -- lease by one.
    last_fence = function(highest) return (number(redis.pcall('GET', highest)) or 0) + 1 end,
    note_grant = function(highest, grants, fence_text, lasts_ms)
      return failed(redis.pcall('SET', highest, fence_text)) or note_granted(grants, fence_text, lasts_ms)
    end,
    -- R13: an owner stops polling before its heartbeat expires. R16: a revoked owner has stopped when its last verification
    -- has ended. Only an instance that keeps R15 takes over then: after a loss of data its polls end as soon (IS_SETTLING).
    is_dead = function(owner)
      if dead[owner] == nil then
        local revoked = KEEPS_R15 and number(redis.pcall('GET', REVOCATIONS .. owner))
        dead[owner] = redis.call('EXISTS', ARGV[12] .. owner) == 0 or (revoked and NOW_US >= revoked * 1000) or false
      end
      return dead[owner]
    end,
    -- heartbeat.lua writes it.
    write_heartbeat = function() return true end,
    succeed = function() end,
    -- A renewal sent before the last release of this instance may be about a released lease (release_by_owner). A key of
    -- another type is deleted: this renewal counts as late, and the next finds no key.
    may_be_released = function(grants)
      local released = redis.pcall('HGET', grants, 'released')
      if failed(released) then redis.pcall('DEL', grants) end
      return failed(released) or (number(released) or 0) > tonumber(ARGV[4])
    end,
    -- A lease or fence that the server has lost counts as granted now: a late release must not take it for the earlier
    -- tenure (release_by_owner), and no later fence may be lower.
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
  local HEARTBEATS, HEARTBEAT_MS = ARGV[10], tonumber(ARGV[11])
  KIND = {
    takes_all_at_once = false,
    -- A leader's heartbeat begins with the grant.
    is_alive = function() return true end,
    -- The last fence of a role is its term, in its record.
    last_fence = function(record) return number(redis.call('HGET', record, GRANTED)) or 0 end,
    note_grant = function() end,
    -- R13: a leader's heartbeat may have been deleted, so only an existing heartbeat that is too old proves that the
    -- leader is dead. Without a heartbeat the role ends with its TTL. role_status.lua shows the same.
    is_dead = function(owner)
      local written_ms = number(redis.pcall('GET', HEARTBEATS .. owner))
      return written_ms and NOW_US / 1000 - written_ms > HEARTBEAT_MS
    end,
    -- R13: every grant and renewal of a role writes the leader's heartbeat first. One key serves all roles of an
    -- instance: it lasts as long as the longest of them needs.
    write_heartbeat = function()
      local lasts = math.max(redis.call('PTTL', HEARTBEATS .. ME), HEARTBEAT_MS)
      return redis.pcall('SET', HEARTBEATS .. ME, exact(math.floor(NOW_US / 1000)), 'PX', lasts)
    end,
    -- A leader deletes its predecessor's heartbeat. A predecessor that leads other roles writes it again.
    succeed = function(record, owner)
      local predecessor = redis.pcall('HGET', record, 'leader' .. SUFFIX)
      for _, it in ipairs({not failed(predecessor) and predecessor or ME, owner or ME}) do
        if it ~= ME then redis.call('DEL', HEARTBEATS .. it) end
      end
      redis.pcall('HSET', record, 'leader' .. SUFFIX, ME)
    end,
    may_be_released = function() return false end,
    count_as_granted = function() end,
  }
end

