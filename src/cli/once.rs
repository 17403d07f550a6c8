//! `leasehold once`: a cron job is installed on many hosts, and one host runs it.

use std::process::ExitCode;
use std::time::Duration;

use crate::StartError;
use crate::cli::lead::passed_on;
use crate::cli::supervised::{self, End, ends_waiting};
use crate::cli::task::SupervisedRun;
use crate::cli::{FAILED, fail, logging};
use crate::clock::{BootClock, Clock};
use crate::config::{CheckedConfig, Config};
use crate::election::{Attempt, Elections, Leadership};
use crate::supervise::signals::Signals;
use crossbeam_channel::{after, bounded, select};

/// What a single attempt comes to.
type Tried = Result<Attempt, StartError>;

/// Runs the command if nobody else does.
pub(crate) fn once(
    config: &CheckedConfig,
    wrap: &SupervisedRun,
    at_least_for: Duration,
    skip_code: u8,
) -> ExitCode {
    // Before any thread exists.
    let signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => return fail(FAILED, &format!("cannot handle signals: {error}")),
    };
    logging::start(config.log_level);
    match attempt(config, wrap, &signals) {
        Err(code) => code,
        Ok(Ok(Attempt::Elected(leadership))) => {
            do_it(config, wrap, leadership, at_least_for, &signals)
        }
        Ok(Ok(_)) => ExitCode::from(skip_code),
        Ok(Err(error)) => fail(FAILED, &error),
    }
}

/// Waits for the outcome, which a hold-off delays. A signal ends that, with its code.
fn attempt(
    config: &CheckedConfig,
    wrap: &SupervisedRun,
    signals: &Signals,
) -> Result<Tried, ExitCode> {
    let elections = match Elections::on_redis(config) {
        Ok(elections) => elections,
        Err(error) => return Ok(Err(error)),
    };
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
                let code = 128 + signal as i32;
                return Err(ExitCode::from(u8::try_from(code).unwrap_or(FAILED)));
            },
        }
    }
}

fn do_it(
    config: &Config,
    wrap: &SupervisedRun,
    leadership: Leadership,
    at_least_for: Duration,
    signals: &Signals,
) -> ExitCode {
    let begun = BootClock.now();
    let election = leadership.election();
    let Some(duty) = election.enter() else { return fail(FAILED, &lost(wrap)) };
    let (ended, is_told) = match supervised::run(config, wrap, election, &duty, signals) {
        Ok(End::Own(ended)) => (ended, false),
        Ok(End::Signalled(ended)) => (ended, true),
        Ok(End::Duty) => return fail(FAILED, &lost(wrap)),
        Err(why) => return fail(FAILED, &why),
    };
    drop(duty);
    let rest = (begun + at_least_for).since(BootClock.now());
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
