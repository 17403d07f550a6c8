//! `leasehold lead`: a command runs while, and only while, this host leads.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::StartError;
use crate::cli::predecessors::Predecessors;
use crate::cli::release_after_death::Keep;
use crate::cli::supervised::{self, End, ends_waiting};
use crate::cli::task::SupervisedRun;
use crate::cli::{FAILED, config_warnings, fail, logging};
use crate::config::{CheckedConfig, Config};
use crate::election::{Duty, Elections, LeaderElection};
use crate::instance::exposition::Exposition;
use crate::instance::metrics_file::MetricsFile;
use crate::instance::metrics_http::MetricsHttp;
use crate::store::redis::RedisStore;
use crate::supervise::Ended;
use crate::supervise::signals::Signals;
use crate::thread::stop;
use crossbeam_channel::{bounded, select};

/// A right that comes back after a doubt makes no event.
const LOOK: Duration = Duration::from_millis(200);
/// With `--restart`: a command that fails at once must not keep the host busy.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Stands for the role until told to stop, or until the command has ended.
pub(crate) fn lead(config: &CheckedConfig, wrap: &SupervisedRun) -> ExitCode {
    // Before any thread exists.
    let signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => return fail(FAILED, &format!("cannot handle signals: {error}")),
    };
    logging::start(config.log_level);
    run(config, wrap, &signals).unwrap_or_else(|why| fail(FAILED, &why))
}

fn run(
    config: &CheckedConfig,
    wrap: &SupervisedRun,
    signals: &Signals,
) -> Result<ExitCode, String> {
    let elections = Elections::on_redis(config).map_err(|error| error.to_string())?;
    let mut state = Predecessors::take(config, elections.instance_id())?;
    let election = match stand(config, wrap, elections, signals) {
        Ok(Some(election)) => election,
        other => {
            state.forget_me();
            return other.map(|_| ExitCode::SUCCESS);
        }
    };
    config_warnings::tell(config, std::iter::empty(), [], election.instance_id());
    let roles = RedisStore::of_roles(config);
    state.revoke_predecessors(&[Arc::new(roles)], config.store_timeout);
    let exposition = Arc::new(Exposition::of_roles(config.metrics_name()));
    exposition.add_role(wrap.role.clone(), election.term_teller());
    let (me, thread) = (election.instance_id(), |error| format!("cannot start a thread: {error}"));
    let _http = MetricsHttp::of(config, me, &exposition).map_err(thread)?;
    let _metrics = MetricsFile::of(config, me, &exposition).map_err(thread)?;
    let code = run_while_leader(config, wrap, &election, signals);
    drop(election);
    state.clear();
    code
}

/// Waits for the store; `None` when told to stop before it was there.
fn stand(
    config: &Config,
    wrap: &SupervisedRun,
    elections: Elections,
    signals: &Signals,
) -> Result<Option<LeaderElection>, String> {
    let settings = config.election_settings(wrap.role.clone());
    let (source, until) = stop();
    let (tell, started) = bounded(1);
    std::thread::Builder::new()
        .name("start".into())
        .spawn(move || drop(tell.send(elections.stand(settings, Some(&until)))))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let mut source = Some(source);
    loop {
        select! {
            recv(started) -> election => return match election {
                // Told to stop while the last of it was on its way: nobody will say so again.
                Ok(Ok(_)) if source.is_none() => Ok(None),
                Ok(Ok(election)) => Ok(Some(election)),
                Ok(Err(StartError::Stopped)) | Err(_) => Ok(None),
                Ok(Err(error)) => Err(error.to_string()),
            },
            recv(signals.caught()) -> signal => if signal.is_ok_and(ends_waiting) {
                source.take();
            },
        }
    }
}

fn run_while_leader(
    config: &Config,
    wrap: &SupervisedRun,
    election: &LeaderElection,
    signals: &Signals,
) -> Result<ExitCode, String> {
    let (change, changed) = bounded(1);
    let _told = election.listen_inline(move |_| {
        // One that waits already is enough.
        let _ = change.try_send(());
    });
    loop {
        if let Some(duty) = election.enter() {
            if let Some(ended) = serve(config, wrap, election, duty, signals)? {
                return Ok(passed_on(&ended));
            }
            continue;
        }
        select! {
            recv(signals.caught()) -> signal => if signal.is_ok_and(ends_waiting) {
                return Ok(ExitCode::SUCCESS);
            },
            recv(changed) -> _ => (),
            default(LOOK) => (),
        }
    }
}

/// Runs the command, again and again if so wished, for one leadership; how it ended, if that is to be the
/// end of everything.
fn serve(
    config: &Config,
    wrap: &SupervisedRun,
    election: &LeaderElection,
    duty: Duty,
    signals: &Signals,
) -> Result<Option<Ended>, String> {
    loop {
        match supervised::run(config, wrap, election, &duty, signals, Keep::NOTHING)? {
            End::Duty => return Ok(None),
            End::Own(ended) if wrap.restart => {
                let rest = crossbeam_channel::after(RESTART_AFTER);
                select! {
                    recv(signals.caught()) -> signal => if signal.is_ok_and(ends_waiting) {
                        return Ok(Some(ended));
                    },
                    recv(rest) -> _ => (),
                }
                if duty.deadline().is_none() {
                    return Ok(None);
                }
            }
            End::Own(ended) | End::Signalled(ended) => return Ok(Some(ended)),
        }
    }
}

/// The command's own code, and why it did not run if it did not.
pub(crate) fn passed_on(ended: &Ended) -> ExitCode {
    match &ended.error {
        Some(why) => fail(ended.code, why),
        None => ExitCode::from(ended.code),
    }
}
