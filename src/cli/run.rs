//! `leasehold run`: one instance, until SIGTERM or SIGINT.

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::BootClock;
use leasehold::config::Config;
use leasehold::daemon::keeper::{Lines, StartError};
use leasehold::daemon::state_file::StateFile;
use leasehold::daemon::thread::{Stop, stop};
use leasehold::event::Event;
use leasehold::model::{InstanceId, Term};
use leasehold::pipeline::poll::NetPoller;
use leasehold::pipeline::poll::command::CommandPoller;
use leasehold::pipeline::poll::guard::Targets;
use leasehold::store::Store;
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::{Daemon, Poller};
use parking_lot::Mutex;

use crate::cli::{FAILED, USAGE, fail, logging};

/// How long a predecessor in the same runtime directory may take to be gone.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(5);

/// Runs an instance to its end.
pub(crate) fn run(config: Config) -> ExitCode {
    logging::start(config.log_level);
    let targets = match Targets::parse(&config.allow_targets, &config.deny_targets) {
        Ok(targets) => targets,
        Err(error) => return fail(USAGE, &format!("--allow-targets, --deny-targets: {error}")),
    };
    match instance(&config, targets) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(FAILED, &why),
    }
}

fn instance(config: &Config, targets: Targets) -> Result<(), String> {
    let signalled = on_signal().map_err(|error| format!("cannot handle signals: {error}"))?;
    let me = InstanceId::generate_now(&config.host_name);
    let (mut state, predecessor) = state_file(config).map_err(|error| error.to_string())?;
    let redis = config.redis.to_string();
    let keys = Keys::new(&config.prefix, &config.session_prefix);
    let store = RedisStore::new(config.redis.expose(), &redis, keys).map_err(text)?;
    Event::DaemonStarted { version: env!("CARGO_PKG_VERSION"), redis: &redis }.log(&me);
    let lines = Lines::redis(store);
    let clock = Arc::new(BootClock);
    let poller = poller(config, targets)?;
    let started = Daemon::start(config, me.clone(), clock, &lines, poller, &signalled);
    let daemon = match started {
        Ok(daemon) => daemon,
        Err(StartError::Stopped) => {
            Event::DaemonStopped { held: 0 }.log(&me);
            return Ok(());
        }
        Err(error) => return Err(error.to_string()),
    };
    if let Some(dead) = predecessor {
        bury(lines.rest.as_ref(), &dead, config.store_timeout);
    }
    if let Some(state) = &mut state {
        state.write(&me).map_err(|error| format!("cannot write the state file: {error}"))?;
    }
    while !signalled.within(Duration::from_secs(3_600)) {}
    Event::DaemonStopping { reason: "signal" }.log(&me);
    daemon.stop();
    if let Some(state) = state {
        let _ = state.remove();
    }
    Ok(())
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// SIGTERM, SIGINT and SIGHUP end the program; the first is enough.
fn on_signal() -> Result<Stop, ctrlc::Error> {
    let (source, signalled) = stop();
    let source = Mutex::new(Some(source));
    ctrlc::set_handler(move || drop(source.lock().take()))?;
    Ok(signalled)
}

/// The lock proves that whoever wrote an id there before is gone, and its commands too (R12).
fn state_file(config: &Config) -> std::io::Result<(Option<StateFile>, Option<InstanceId>)> {
    let Some(dir) = &config.runtime_dir else { return Ok((None, None)) };
    let mut state = StateFile::lock(dir, PREDECESSOR_PATIENCE)?;
    let predecessor = state.instance()?;
    Ok((Some(state), predecessor))
}

/// What a predecessor left behind need not wait for its TTL. If this fails, it does.
fn bury(store: &dyn Store, dead: &InstanceId, timeout: Duration) {
    if let Err(error) = store.bury(dead, timeout) {
        log::warn!("event=release.failed instance={dead} error={:?}", error.to_string());
    }
}

fn poller(config: &Config, targets: Targets) -> Result<Arc<dyn Poller>, String> {
    let Some(program) = &config.poll_command else {
        return Ok(Arc::new(NetPoller::new(targets, config.max_body)));
    };
    let guardian = std::env::current_exe()
        .map_err(|error| format!("cannot find this program for --poll-command: {error}"))?;
    // TERM, then KILL, and all of it before another instance could be granted the lease.
    let grace = Term::new(config.lease_ttl).margin() / 2;
    Ok(Arc::new(CommandPoller::new(program.clone(), guardian, config.max_body, grace)))
}
