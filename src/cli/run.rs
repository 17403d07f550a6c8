//! `leasehold run`: one instance, until SIGTERM or SIGINT.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::BootClock;
use leasehold::config::Config;
use leasehold::daemon::keeper::{Lines, StartError};
use leasehold::daemon::systemd::{self, Notifier};
use leasehold::daemon::thread::stop;
use leasehold::election::{Elections, LeaderElection, RoleLines};
use leasehold::event::Event;
use leasehold::model::{InstanceId, Term};
use leasehold::pipeline::poll::NetPoller;
use leasehold::pipeline::poll::command::CommandPoller;
use leasehold::pipeline::poll::guard::Targets;
use leasehold::store::Store;
use leasehold::store::redis::RedisStore;
use leasehold::{Daemon, Poller, Stop, stop_on_signal};

use crate::cli::state::State;
use crate::cli::{FAILED, USAGE, fail, logging};

/// Runs an instance to its end.
pub(crate) fn run(config: &Config) -> ExitCode {
    logging::start(config.log_level);
    let targets = match Targets::parse(&config.allow_targets, &config.deny_targets) {
        Ok(targets) => targets,
        Err(error) => return fail(USAGE, &format!("--allow-targets, --deny-targets: {error}")),
    };
    match instance(config, targets) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(FAILED, &why),
    }
}

fn instance(config: &Config, targets: Targets) -> Result<(), String> {
    let signalled = stop_on_signal().map_err(|error| format!("cannot handle signals: {error}"))?;
    let me = InstanceId::generate_now(&config.host_name);
    let manager = manager(&me);
    let mut state = State::take(config, &me)?;
    let lines = Lines::redis(config).map_err(|error| error.to_string())?;
    let redis = config.redis.to_string();
    Event::DaemonStarted { version: env!("CARGO_PKG_VERSION"), redis: &redis }.log(&me);
    let poller = poller(config, targets)?;
    let clock = Arc::new(BootClock);
    match Daemon::start(config, me.clone(), clock, &lines, poller, &signalled) {
        Ok(daemon) => {
            state.bury_predecessors(&held_in(config, &lines)?, config.store_timeout);
            let (watching, when) = stop();
            // Each part moves at least this often when all is well.
            let patience = 2 * (config.heartbeat_interval + config.store_timeout);
            let elections = stand(config, &me, &signalled)?;
            for it in &elections {
                daemon.exposition().add_role(it.role().clone(), it.term_teller());
            }
            let progress = Arc::clone(daemon.progress());
            let watchdog = systemd::watch(Arc::clone(&manager), progress, patience, when)
                .map_err(|error| format!("cannot start a thread: {error}"))?;
            while !signalled.within(Duration::from_secs(3_600)) {}
            manager.say("STOPPING=1");
            Event::DaemonStopping { reason: "signal" }.log(&me);
            drop(elections);
            daemon.stop();
            drop(watching);
            watchdog.join();
        }
        Err(error) => {
            state.forget_me();
            return match error {
                StartError::Stopped => {
                    Event::DaemonStopped { held: 0 }.log(&me);
                    Ok(())
                }
                error => Err(error.to_string()),
            };
        }
    }
    state.clear();
    Ok(())
}

/// Where an instance with these settings may have left something.
fn held_in(config: &Config, lines: &Lines) -> Result<Vec<Arc<dyn Store>>, String> {
    let mut stores = vec![Arc::clone(&lines.rest)];
    if !config.lead.is_empty() {
        let roles = RedisStore::of_roles(config).map_err(|error| error.to_string())?;
        stores.push(Arc::new(roles));
    }
    Ok(stores)
}

/// Stands for the roles of `--lead`, as the same instance.
fn stand(config: &Config, me: &InstanceId, until: &Stop) -> Result<Vec<LeaderElection>, String> {
    if config.lead.is_empty() {
        return Ok(Vec::new());
    }
    let sentence = |error: StartError| error.to_string();
    let lines = RoleLines::redis(config).map_err(|error| error.to_string())?;
    let (clock, timeout) = (Arc::new(BootClock), config.store_timeout);
    let elections = Elections::start(me.clone(), lines, clock, config.new_fleet, timeout);
    let elections = elections.map_err(sentence)?;
    let mut standing = Vec::new();
    for role in &config.lead {
        match elections.stand(config.candidacy(role.clone()), Some(until)) {
            Ok(election) => standing.push(election),
            Err(StartError::Stopped) => break,
            Err(error) => return Err(sentence(error)),
        }
    }
    Ok(standing)
}

/// The service manager, if this process has one.
fn manager(me: &InstanceId) -> Arc<Notifier> {
    let (socket, period) = (env::var_os("NOTIFY_SOCKET"), env::var_os("WATCHDOG_USEC"));
    let notifier = Notifier::new(socket.as_deref(), period.as_deref());
    Arc::new(notifier.unwrap_or_else(|error| {
        // One that does not listen is no reason not to start.
        Event::ManagerUnreachable { error: &error }.log(me);
        Notifier::default()
    }))
}

fn poller(config: &Config, targets: Targets) -> Result<Arc<dyn Poller>, String> {
    let Some(program) = &config.poll_command else {
        return Ok(Arc::new(NetPoller::new(targets, config.max_body)));
    };
    let guardian = std::env::current_exe()
        .map_err(|error| format!("cannot find this program for --poll-command: {error}"))?;
    // TERM, then KILL, and all of it before another instance could be granted the lease.
    let shortest = config.lease_ttl.min(config.heartbeat_ttl);
    let grace = Term::new(shortest).margin() / 2;
    Ok(Arc::new(CommandPoller::new(program.clone(), guardian, config.max_body, grace)))
}
