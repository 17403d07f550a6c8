//! `leasehold once`: a cron job is installed on many hosts, and one host runs it.

use std::process::ExitCode;
use std::time::Duration;

use crate::StartError;
use crate::cli::lead::passed_on;
use crate::cli::release_after_death::Keep;
use crate::cli::runs::RunLog;
use crate::cli::supervised::{self, End, ends_waiting};
use crate::cli::task::{OnceHow, SupervisedRun};
use crate::cli::{FAILED, fail, logging};
use crate::clock::{BootClock, Clock};
use crate::config::{CheckedConfig, Config};
use crate::election::{Attempt, Elections, Leadership};
use crate::model::FenceToken;
use crate::store::redis::RedisStore;
use crate::store::{Store, StoreError};
use crate::supervise::signals::Signals;
use crossbeam_channel::{after, bounded, select};
use nix::sys::signal::Signal;

/// What a single attempt comes to.
type Tried = Result<Attempt, StartError>;

/// So often a host that waits for the outcome of a run looks whether the role is free.
const LOOK: Duration = Duration::from_millis(500);

/// Runs the command if nobody else does.
pub(crate) fn once(config: &CheckedConfig, wrap: &SupervisedRun, how: OnceHow) -> ExitCode {
    // Before any thread exists.
    let signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => return fail(FAILED, &format!("cannot handle signals: {error}")),
    };
    logging::start(config.log_level);
    attempts(config, wrap, how, &signals).unwrap_or_else(|why| fail(FAILED, &why))
}

/// One attempt, or, with `--retry`, one after each failure of another host.
fn attempts(
    config: &CheckedConfig,
    wrap: &SupervisedRun,
    how: OnceHow,
    signals: &Signals,
) -> Result<ExitCode, String> {
    let skipped = Ok(ExitCode::from(how.skip_code));
    let said = |error: StoreError| error.to_string();
    // The term under which another host made the first attempt that this one knows of.
    let mut first = None;
    loop {
        let elections = Elections::on_redis(config).map_err(|error| error.to_string())?;
        let runs = RunLog::new(config, &wrap.role, elections.instance_id());
        let is_recent = |age: Option<Duration>| match age {
            Some(age) => runs.is_recent(age).map_err(said),
            None => Ok(false),
        };
        if first.is_none() && is_recent(how.catch_up)? {
            return skipped;
        }
        let leadership = match attempt(config, wrap, elections, signals) {
            Err(code) => return Ok(code),
            Ok(Err(error)) => return Err(error.to_string()),
            Ok(Ok(Attempt::LedBy(leader))) if how.retry == 0 => {
                runs.skipped(&leader);
                return skipped;
            }
            Ok(Ok(Attempt::LedBy(leader))) => {
                let term = match wait(config, wrap, signals)? {
                    Waited::Told(code) => return Ok(code),
                    Waited::Free { since } => *first.get_or_insert(since),
                };
                if !runs.since(term).map_err(said)?.are_to_go_on(how.retry) {
                    runs.skipped(&leader);
                    return skipped;
                }
                continue;
            }
            Ok(Ok(Attempt::Cancelled)) => return skipped,
            Ok(Ok(Attempt::Elected(leadership))) => leadership,
        };
        // While this host leads, no other runs the command: what is recorded is complete.
        let goes_on = match first {
            Some(term) => runs.since(term).map_err(said)?.are_to_go_on(how.retry),
            None => !is_recent(how.catch_up)?,
        };
        if !goes_on {
            return skipped;
        }
        return Ok(do_it(config, wrap, leadership, how, signals));
    }
}

enum Waited {
    /// The role is free; the term of the leader that there was at the beginning.
    Free { since: FenceToken },
    /// A signal, with the exit code that it asks for.
    Told(ExitCode),
}

/// Waits until nobody leads the role any more.
fn wait(config: &Config, wrap: &SupervisedRun, signals: &Signals) -> Result<Waited, String> {
    let (store, role) = (RedisStore::of_roles(config), wrap.role.as_lease());
    let mut first = None;
    loop {
        let status = store.role_statuses(std::slice::from_ref(role), config.store_timeout);
        let status = status.map_err(|error| error.to_string())?.pop();
        let Some(status) = status else { return Err(format!("nothing is known of {role}")) };
        let since = *first.get_or_insert(status.term);
        if status.leader.is_none() {
            return Ok(Waited::Free { since });
        }
        select! {
            recv(after(LOOK)) -> _ => (),
            recv(signals.caught()) -> signal => if let Ok(signal) = signal && ends_waiting(signal) {
                return Ok(Waited::Told(code_of(signal)));
            },
        }
    }
}

fn code_of(signal: Signal) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(FAILED))
}

/// Waits for the outcome, which a hold-off delays. A signal ends that, with its code.
fn attempt(
    config: &CheckedConfig,
    wrap: &SupervisedRun,
    elections: Elections,
    signals: &Signals,
) -> Result<Tried, ExitCode> {
    let settings = config.election_settings(wrap.role.clone());
    let (tell, outcome) = bounded(1);
    let tried = move || drop(tell.send(elections.try_lead(settings)));
    if let Err(error) = std::thread::Builder::new().name("attempt".into()).spawn(tried) {
        return Err(fail(FAILED, &format!("cannot start a thread: {error}")));
    }
    loop {
        select! {
            recv(outcome) -> tried => return Ok(tried.unwrap_or(Err(StartError::Stopped))),
            recv(signals.caught()) -> signal => if let Ok(signal) = signal && ends_waiting(signal) {
                return Err(code_of(signal));
            },
        }
    }
}

fn do_it(
    config: &Config,
    wrap: &SupervisedRun,
    leadership: Leadership,
    how: OnceHow,
    signals: &Signals,
) -> ExitCode {
    // With `--retry`, another host is to try again after a failure, and soon.
    let keep = Keep::until(BootClock.now() + how.at_least_for, how.retry > 0);
    let election = leadership.election();
    let Some(duty) = election.enter() else { return fail(FAILED, &lost(wrap)) };
    let (ended, is_told) = match supervised::run(config, wrap, election, &duty, signals, keep) {
        Ok(End::Own(ended)) => (ended, false),
        Ok(End::Signalled(ended)) => (ended, true),
        Ok(End::Duty) => return fail(FAILED, &lost(wrap)),
        Err(why) => return fail(FAILED, &why),
    };
    drop(duty);
    let rest = keep.end(ended.code == 0).since(BootClock.now());
    if !rest.is_zero() && (is_told || is_told_within(rest, signals)) {
        // To give it up now would break the promise; let it end with its TTL.
        std::mem::forget(leadership);
    }
    passed_on(&ended)
}

fn is_told_within(rest: Duration, signals: &Signals) -> bool {
    let over = after(rest);
    loop {
        select! {
            recv(over) -> _ => return false,
            recv(signals.caught()) -> signal => if signal.is_ok_and(ends_waiting) {
                return true;
            },
        }
    }
}

fn lost(wrap: &SupervisedRun) -> String {
    let role = &wrap.role;
    format!("the role {role} was lost or given up, so the command was ended: see the log above")
}
