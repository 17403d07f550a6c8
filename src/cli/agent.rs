//! `leasehold agent`: holds leases and roles for other programs of this host, until SIGTERM or SIGINT. `leasehold connect`
//! is a way to it for programs that cannot open a unix socket.

use std::env;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{after, select};

use crate::agent::{Agent, AgentSettings};
use crate::cli::limits::raise_files;
use crate::cli::options::{Draft, Spec};
use crate::cli::predecessors::Predecessors;
use crate::cli::task::Instance;
use crate::cli::usage::UsageError;
use crate::cli::{FAILED, config_warnings, fail, logging};
use crate::clock::{BootClock, Clock};
use crate::config::setting::Setting;
use crate::config::{CheckedConfig, Config};
use crate::election::{Elections, RoleConnections};
use crate::event::Event;
use crate::instance::systemd::Notifier;
use crate::lease::keeper::{Connections, StartError};
use crate::manager::LeaseManager;
use crate::model::InstanceId;
use crate::store::redis::RedisStore;
use crate::thread::Stop;
use crate::thread::signals::stops_on_signals;

/// How often the agent is looked at, without a watchdog that wants it more often.
const LOOK: Duration = Duration::from_millis(500);

/// The user and the group of the agent.
const SOCKET_MODE: u32 = 0o660;
/// Most clients of an agent.
const CLIENTS_MAX: usize = 1_024;

/// Leases and roles have one TTL, and the heartbeat has the same.
pub(crate) fn of(
    command: &'static Spec,
    draft: Draft,
) -> Result<(CheckedConfig, Instance), UsageError> {
    let Draft { mut config, given, socket, socket_mode, clients_max, .. } = draft;
    let socket = socket.ok_or(UsageError::NoSocket { command })?;
    if !given.contains(Setting::RenewInterval) {
        config.renew_interval = config.lease_ttl / 3;
    }
    config.heartbeat_ttl = config.lease_ttl;
    config.heartbeat_interval = config.renew_interval;
    if !given.contains(Setting::StoreTimeout) {
        config.store_timeout = Config::usual_store_timeout(config.lease_ttl, config.lease_ttl);
    }
    let mode = socket_mode.unwrap_or(SOCKET_MODE);
    let how = AgentSettings { socket, mode, clients_max: clients_max.unwrap_or(CLIENTS_MAX) };
    Ok((config.checked()?, Instance::Agent(how)))
}

/// Runs an agent to its end.
pub(crate) fn agent(config: &CheckedConfig, how: &AgentSettings) -> ExitCode {
    logging::start(config.log_level);
    let files = raise_files();
    let needed = how.clients_max.saturating_add(64) as u64;
    let warning = (files.limit < needed).then(|| {
        let limit = files.limit;
        format!("--max-clients {} needs {needed} open files, and {limit} are allowed: raise LimitNOFILE", how.clients_max)
    });
    match serve(config, how, warning) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(FAILED, &why),
    }
}

fn serve(
    config: &CheckedConfig,
    how: &AgentSettings,
    warning: Option<String>,
) -> Result<(), String> {
    let (signalled, hurried) =
        stops_on_signals().map_err(|error| format!("cannot handle signals: {error}"))?;
    let me = InstanceId::generate_now(&config.host_name);
    let notifier = Notifier::of_environment(&me);
    let mut state = Predecessors::take(config, &me)?;
    let redis = config.redis.to_string();
    Event::DaemonStarted { version: env!("CARGO_PKG_VERSION"), redis: &redis }.log(&me);
    config_warnings::tell(config, env::vars_os().map(|it| it.0), warning, &me);
    let (manager, elections) = match start(config, &me, &signalled) {
        Ok(started) => started,
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
    };
    let stores = [RedisStore::of_endpoints(config), RedisStore::of_roles(config)];
    state.revoke_predecessors(&stores.map(|it| Arc::new(it) as _), config.store_timeout);
    let agent = Agent::start(config, how, manager, elections)?;
    notifier.notify(&format!("READY=1\nSTATUS=listening at {}", how.socket.display()));
    let failure = run(&agent, &notifier, &signalled);
    notifier.notify("STOPPING=1");
    let reason = if failure.is_some() { "panic" } else { "signal" };
    Event::DaemonStopping { reason }.log(&me);
    agent.stop(config.drain_timeout, &hurried);
    Event::DaemonStopped { held: 0 }.log(&me);
    state.clear();
    failure.map_or(Ok(()), Err)
}

fn start(
    config: &CheckedConfig,
    me: &InstanceId,
    until: &Stop,
) -> Result<(LeaseManager, Elections), StartError> {
    let (connections, clock) = (Connections::redis(config), Arc::new(BootClock));
    let manager =
        LeaseManager::start_waiting(config, me.clone(), &connections, clock.clone(), Some(until))?;
    let roles = RoleConnections::redis(config);
    let timeout = config.store_timeout;
    let elections = Elections::start(me.clone(), roles, clock, config.new_fleet, timeout)?;
    Ok((manager, elections))
}

/// Until a signal comes, or a thread has panicked.
fn run(agent: &Agent, notifier: &Notifier, signalled: &Stop) -> Option<String> {
    let period = notifier.watchdog();
    let tick = period.map_or(LOOK, |it| LOOK.min(it / 4));
    loop {
        select! {
            recv(signalled.receiver()) -> _ => return None,
            recv(after(tick)) -> _ => (),
        }
        if let Some(failure) = agent.failure() {
            return Some(failure);
        }
        let is_moving = |period: Duration| BootClock.now().since(agent.moved_at()) < period;
        if period.is_some_and(is_moving) {
            notifier.notify("WATCHDOG=1");
        }
    }
}

/// Copies stdin to the agent, and what it says to stdout. Ends when the agent does, with an error unless stdin has ended.
pub(crate) fn connect(socket: &Path) -> ExitCode {
    let shown = socket.display();
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) => {
            let why = format!("cannot connect to the agent at {shown}: {error}; does it run?");
            return fail(FAILED, &why);
        }
    };
    let Ok(writer) = stream.try_clone() else {
        return fail(FAILED, &"no descriptor is left");
    };
    // Not joined: it waits for stdin. At its end the agent carries out what was said, and ends the session.
    let has_ended = Arc::<AtomicBool>::default();
    let stdin_ended = Arc::clone(&has_ended);
    let copy = move || {
        let _ = copied(&mut io::stdin().lock(), &mut &writer);
        stdin_ended.store(true, Ordering::Release);
        let _ = writer.shutdown(Shutdown::Write);
    };
    if let Err(error) = std::thread::Builder::new().name("stdin".into()).spawn(copy) {
        return fail(FAILED, &format!("cannot start a thread: {error}"));
    }
    match copied(&mut &stream, &mut io::stdout().lock()) {
        Ok(()) if has_ended.load(Ordering::Acquire) => ExitCode::SUCCESS,
        Ok(()) => fail(FAILED, &"the agent has ended the connection"),
        Err(error) => fail(FAILED, &format!("the connection to the agent has failed: {error}")),
    }
}

/// Each piece as soon as it comes.
fn copied(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = [0; 4_096];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                to.write_all(&bytes[..read])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
}
