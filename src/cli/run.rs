//! `leasehold run`: one instance, until SIGTERM or SIGINT. SIGHUP reads the settings again.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;

use crate::cli::limits::{Files, raise_files};
use crate::cli::predecessors::Predecessors;
use crate::cli::reload::{Replaceable, Sources};
use crate::cli::{FAILED, USAGE, config_warnings, fail, logging, web};
use crate::clock::{BootClock, Clock};
use crate::config::ConfigError;
use crate::config::setting::Names;
use crate::config::{CheckedConfig, Config};
use crate::election::{Elections, LeaderElection, RoleConnections};
use crate::event::Event;
use crate::inspect::doctor;
use crate::instance::status_line::{LifecyclePhase, StatusLine};
use crate::instance::systemd::{self, Notifier};
use crate::lease::keeper::{Connections, StartError};
use crate::model::{InstanceId, LeaseDuration};
use crate::polling::command::CommandPoller;
use crate::polling::http::Trust;
use crate::polling::net_poller::NetPoller;
use crate::polling::targets::Targets;
use crate::store::Store;
use crate::store::redis::RedisStore;
use crate::supervise::signals::Signals;
use crate::thread::signals::stops_on_signals;
use crate::thread::stop;
use crate::{Daemon, Poller, Stop};
use crossbeam_channel::select;

/// Runs an instance to its end.
pub(crate) fn run(config: &CheckedConfig, warning: Option<String>) -> ExitCode {
    logging::start(config.log_level);
    let files = raise_files();
    let targets = match Targets::parse(&config.allow_targets, &config.deny_targets) {
        Ok(targets) => targets,
        Err(error) => return fail(USAGE, &format!("--allow-targets, --deny-targets: {error}")),
    };
    match instance(config, targets, files, warning) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(FAILED, &why),
    }
}

fn instance(
    config: &CheckedConfig,
    targets: Targets,
    files: Files,
    warning: Option<String>,
) -> Result<(), String> {
    let sources = Sources::new(env::args_os().skip(1).collect(), config)?;
    // First of all: every thread must have SIGHUP blocked.
    let hangups = Signals::catch_hangup().map_err(|it| format!("cannot handle signals: {it}"))?;
    let (signalled, hurried) =
        stops_on_signals().map_err(|error| format!("cannot handle signals: {error}"))?;
    let me = InstanceId::generate_now(&config.host_name);
    let manager = Arc::new(Notifier::of_environment(&me));
    let mut state = Predecessors::take(config, &me)?;
    let connections = Connections::redis(config);
    let redis = config.redis.to_string();
    Event::DaemonStarted { version: env!("CARGO_PKG_VERSION"), redis: &redis }.log(&me);
    let warnings = warning.into_iter().chain(files_warning(files, config));
    config_warnings::tell(config, env::vars_os().map(|it| it.0), warnings, &me);
    let replaceable = Arc::new(Replaceable::new(poller(config, targets, files)?));
    let poller: Arc<dyn Poller> = Arc::<Replaceable>::clone(&replaceable);
    // Each part moves at least this often when all is well.
    let patience = 2 * (config.heartbeat_interval + config.store_timeout);
    let status_line = Arc::new(StatusLine::new(&redis, patience));
    let (watching, when) = stop();
    let watchdog = systemd::watch(Arc::clone(&manager), Arc::clone(&status_line), when)
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let metrics = web::Told::default();
    let _web = web::beside(config, &me, &metrics)?;
    // Dropped from left to right: the thread must be able to end before it is waited for.
    let _watchdog = (watching, watchdog);
    match Daemon::start(config, me.clone(), Arc::new(BootClock), &connections, poller, &signalled) {
        Ok(mut daemon) => {
            daemon.hurry_at(hurried);
            let _ = metrics.set(Arc::clone(daemon.exposition()));
            let table = Arc::clone(daemon.table());
            status_line
                .enter(LifecyclePhase::Running(Arc::clone(&table), Arc::clone(daemon.liveness())));
            state.revoke_predecessors(&held_in(config, &connections), config.store_timeout);
            let elections = stand(config, &me, &signalled)?;
            for it in &elections {
                daemon.exposition().add_role(it.role().clone(), it.term_teller());
            }
            let (mine, manager, me) = (config.clone(), &*manager, &me);
            let mut reload = Reload { sources, config: mine, files, me, manager };
            loop {
                select! {
                    recv(signalled.receiver()) -> _ => break,
                    recv(daemon.failed().receiver()) -> _ => break,
                    recv(hangups.caught()) -> _ => reload.step(&mut daemon, &replaceable),
                }
            }
            manager.notify("STOPPING=1");
            // The polls that run, and some calls that may all time out.
            let limit = config.drain_timeout + 8 * config.store_timeout;
            status_line.enter(LifecyclePhase::Draining(table, BootClock.now(), limit));
            // A build that does not abort at a panic: the unit starts another.
            let failure = daemon.failure().map(ToString::to_string);
            let reason = if failure.is_some() { "panic" } else { "signal" };
            Event::DaemonStopping { reason }.log(me);
            drop(elections);
            daemon.stop();
            failure.map_or(Ok(()), Err)?;
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

/// What happens at a SIGHUP.
struct Reload<'a> {
    sources: Sources,
    /// In force.
    config: CheckedConfig,
    files: Files,
    me: &'a InstanceId,
    manager: &'a Notifier,
}

impl Reload<'_> {
    fn step(&mut self, daemon: &mut Daemon, replaceable: &Replaceable) {
        // A READY=1 ends a reload, but would also end a start that is not over.
        let ready = daemon.liveness().is_ready();
        if ready {
            self.manager.notify("RELOADING=1");
        }
        if let Err(error) = self.reload(daemon, replaceable) {
            Event::DaemonReloadRefused { error: &error }.log(self.me);
        }
        if ready {
            self.manager.notify("READY=1");
        }
    }

    fn reload(&mut self, daemon: &mut Daemon, replaceable: &Replaceable) -> Result<(), String> {
        let news = self.sources.read(&self.config, &|name| env::var_os(name))?;
        let poller = poller(&news.config, news.targets, self.files)?;
        daemon.reload(&news.config);
        replaceable.replace(poller);
        self.config = news.config;
        // Said at the more talkative of the two levels.
        let level = self.config.log_level;
        logging::raise_level(level);
        Event::DaemonReloaded { changed: &news.changed }.log(self.me);
        if let Some(reason) = files_warning(self.files, &self.config) {
            Event::SettingsOdd { reason: &reason }.log(self.me);
        }
        if !news.waiting.is_empty() {
            Event::DaemonNeedsRestart { options: &news.waiting }.log(self.me);
        }
        logging::set_level(level);
        Ok(())
    }
}

/// Where an instance with these settings may have left something.
fn held_in(config: &Config, connections: &Connections) -> Vec<Arc<dyn Store>> {
    let mut stores = vec![Arc::clone(&connections.rest)];
    if !config.lead.is_empty() {
        stores.push(Arc::new(RedisStore::of_roles(config)));
    }
    stores
}

/// Stands for the roles of `--lead`, as the same instance.
fn stand(config: &Config, me: &InstanceId, until: &Stop) -> Result<Vec<LeaderElection>, String> {
    if config.lead.is_empty() {
        return Ok(Vec::new());
    }
    let sentence = |error: StartError| error.to_string();
    let connections = RoleConnections::redis(config);
    let (clock, timeout) = (Arc::new(BootClock), config.store_timeout);
    let elections = Elections::start(me.clone(), connections, clock, config.new_fleet, timeout);
    let elections = elections.map_err(sentence)?;
    let mut standing = Vec::new();
    for role in &config.lead {
        match elections.stand(config.election_settings(role.clone()), Some(until)) {
            Ok(election) => standing.push(election),
            Err(StartError::Stopped) => break,
            Err(error) => return Err(sentence(error)),
        }
    }
    Ok(standing)
}

/// What is odd about the limit of open files.
fn files_warning(files: Files, config: &Config) -> Option<String> {
    let found = doctor::files::too_few(files.limit, config)?;
    Some(format!("{found}; {}", doctor::files::way_out(config)))
}

fn poller(config: &Config, targets: Targets, files: Files) -> Result<Arc<dyn Poller>, String> {
    let Some(program) = &config.poll_command else {
        let access = &config.poll_access;
        let trust = Trust {
            authorities: access
                .authorities()
                .map_err(|it| ConfigError::new(it, Names::OPTIONS).to_string())?,
            allows_insecure: access.allow_insecure,
            warn_days: access.cert_warn_days,
        };
        let poller = NetPoller::new(targets, config.max_body);
        return Ok(Arc::new(poller.with_access(trust, access.secrets_dir.clone())));
    };
    let poll_supervisor = std::env::current_exe()
        .map_err(|error| format!("cannot find this program for --poll-command: {error}"))?;
    // TERM, then KILL, and all of it before another instance could be granted the lease.
    let shortest = config.lease_ttl.min(config.heartbeat_ttl);
    let grace = LeaseDuration::new(shortest).margin() / 2;
    let poller = CommandPoller::new(program.clone(), poll_supervisor, config.max_body, grace);
    Ok(Arc::new(poller.with_soft_files(files.before)))
}
