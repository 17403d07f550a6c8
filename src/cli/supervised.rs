//! How does a command run as long as a duty lasts, and not a moment longer?
//!
//! The supervisor ends it at the role's deadline whatever happens here; this side moves the deadline on with
//! every renewal, passes signals on, and ends the command in good time when the role is to be given up.

use std::path::Path;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::election::{Duty, LeaderElection};
use crate::model::{LeaseDuration, Tenure};
use crate::supervise::signals::Signals;
use crate::supervise::{Ended, SupervisedCommand};
use crossbeam_channel::{Receiver, after, never, select};
use nix::sys::signal::Signal;

use crate::cli::release_after_death::{Keep, RoleRelease};
use crate::cli::runs::RunLog;
use crate::cli::task::SupervisedRun;

/// So often the deadline is looked at.
const TICK: Duration = Duration::from_millis(50);

/// The executable that runs, even if its file was replaced meanwhile.
const THIS: &str = "/proc/self/exe";

/// How a command came to its end.
pub(crate) enum End {
    /// By itself, or by a signal of another process.
    Own(Ended),
    /// By a signal to us that was passed on.
    Signalled(Ended),
    /// Because the role was given up, or lost, or about to be.
    Duty,
}

/// Whether a signal ends this program while there is no command to pass it on to.
pub(crate) fn ends_waiting(signal: Signal) -> bool {
    is_stop(signal) || matches!(signal, Signal::SIGHUP | Signal::SIGQUIT)
}

/// Whether a signal asks to stop.
fn is_stop(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT)
}

/// Time between TERM and KILL, and before the deadline: a part of what a leadership lasts.
fn grace(config: &Config) -> Duration {
    config.drain_timeout.min(LeaseDuration::new(config.lease_ttl).usable() / 5)
}

/// Runs the command once, at most for as long as `duty` lasts. If `leasehold` is killed meanwhile, the supervisor gives the role
/// back, but keeps it as `keep` says.
pub(crate) fn run(
    config: &Config,
    wrap: &SupervisedRun,
    election: &LeaderElection,
    duty: &Duty,
    signals: &Signals,
    keep: Keep,
) -> Result<End, String> {
    let environment = [
        ("LEASEHOLD_ROLE", wrap.role.to_string()),
        ("LEASEHOLD_TERM", duty.term().to_string()),
        ("LEASEHOLD_INSTANCE", election.instance_id().to_string()),
    ];
    let grace = grace(config);
    let mut command =
        SupervisedCommand::prepare(Path::new(THIS), &wrap.program, &environment, grace)?;
    let runs = RunLog::of(config, &wrap.role, election);
    let started = runs.started(duty.term());
    if let (true, Err(error)) = (wrap.must_be_recorded, &started) {
        return Err(format!(
            "the command was not started, because that cannot be recorded: {error}"
        ));
    }
    let tenure = Tenure::new(wrap.role.as_lease().clone(), duty.term());
    let release = RoleRelease::new(config, election.instance_id(), tenure, keep);
    // Before the start: no command can read the password in it out of the pipe.
    release.encode().iter().for_each(|it| command.on_death(it));
    let end = start(config, duty, signals, &mut command, grace);
    runs.ended(duty.term(), started.ok(), &end);
    end
}

fn start(
    config: &Config,
    duty: &Duty,
    signals: &Signals,
    command: &mut SupervisedCommand,
    grace: Duration,
) -> Result<End, String> {
    // R2: asked again right before the start, which is all that is left to do.
    let Some(until) = duty.deadline().filter(|_| duty.holds()) else { return Ok(End::Duty) };
    if BootClock.now() + grace >= until {
        // It would be told to end before it began.
        return Ok(End::Duty);
    }
    command.go(until)?;
    let watch = Supervision { duty, grace, until, is_threatened: false, stop_at: None };
    Ok(watch.until_end(command, signals.caught(), config.drain_timeout))
}

struct Supervision<'a> {
    duty: &'a Duty,
    grace: Duration,
    until: Moment,
    /// The supervisor may have begun to end it.
    is_threatened: bool,
    /// When a command that was signalled has had time enough.
    stop_at: Option<Moment>,
}

impl Supervision<'_> {
    fn until_end(
        mut self,
        command: &mut SupervisedCommand,
        signals: &Receiver<Signal>,
        patience: Duration,
    ) -> End {
        loop {
            let tick = if self.is_threatened { never() } else { after(TICK) };
            select! {
                recv(command.ended()) -> ended => return self.verdict(ended.ok()),
                recv(signals) -> signal => if let Ok(signal) = signal {
                    command.signal(signal);
                    if is_stop(signal) {
                        self.stop_at.get_or_insert(BootClock.now() + patience);
                    }
                },
                recv(tick) -> _ => self.tick(command),
            }
        }
    }

    fn tick(&mut self, command: &mut SupervisedCommand) {
        let now = BootClock.now();
        let Some(deadline) = self.duty.deadline() else {
            self.is_threatened = true;
            return command.end();
        };
        if self.stop_at.is_some_and(|it| now >= it) {
            command.end();
        }
        if now + self.grace >= self.until {
            // TERM is on its way. A renewal that comes now is too late for this run of the command.
            self.is_threatened = true;
            return command.end();
        }
        if deadline > self.until {
            self.until = deadline;
            command.extend(deadline);
        }
    }

    fn verdict(&self, ended: Option<Ended>) -> End {
        let gone = || Ended { code: 1, error: Some("the supervisor is gone".into()) };
        let ended = ended.unwrap_or_else(gone);
        if self.stop_at.is_some() {
            return End::Signalled(ended);
        }
        let told = self.is_threatened || BootClock.now() + self.grace >= self.until;
        if told || self.duty.deadline().is_none() { End::Duty } else { End::Own(ended) }
    }
}
