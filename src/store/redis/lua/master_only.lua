-- master_only: refuses the call on a replica. Included in front of scripts that write, but need no epoch.
if not string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY this server is a replica')
end

