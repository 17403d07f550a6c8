//! How is an endpoint polled by a command (`--poll-command`)?
//!
//! The command runs under the poll supervisor (`leasehold poll-supervisor`, R12), in its process group. The supervisor is started
//! first; the permit is confirmed right before the supervisor is told to start the command.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::lease::permit::{PollPermit, Revoked};
use crate::model::{Sample, Session};
use crate::net::shortage::{self, COMMAND_POLL, Descriptors};
use crate::net::wait::{Wake, plain};
use crate::polling::poller::Poller;
use crate::polling::program::{Ending, Program};

/// Polls by running a command.
#[derive(Debug)]
pub struct CommandPoller(Program);

/// Why a command was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Revoked,
    Late,
}

impl CommandPoller {
    /// Runs the program `words[0]` with its arguments under `supervisor` (this executable), keeps at most `body_max`
    /// bytes of its output, and leaves it `grace` between TERM and KILL. A lost lease must be over
    /// within the margin, so `grace` has to be shorter.
    pub fn new(words: Vec<String>, supervisor: PathBuf, body_max: usize, grace: Duration) -> Self {
        Self(Program { words, supervisor, body_max, grace, soft_files: None })
    }

    /// Gives commands this soft limit of open files instead of ours, which may have been raised: programs that use
    /// select(2) fail above 1,024.
    pub fn with_soft_files(self, soft_files: Option<u64>) -> Self {
        Self(Program { soft_files, ..self.0 })
    }
}

impl Poller for CommandPoller {
    fn poll(
        &self,
        session: &Session,
        permit: &PollPermit,
        timeout: Duration,
    ) -> Result<Sample, Revoked> {
        let mut begun = BootClock.now();
        let deadline = begun + timeout;
        let _descriptors =
            Descriptors::take(COMMAND_POLL).map_err(|why| permit.defer_for_room(why))?;
        let failed = |what: &str, error: &io::Error, begun: Moment| {
            if let Some(why) = shortage::of_spawn(error) {
                return Err(permit.defer(why));
            }
            let name = self.0.supervisor.display();
            let error = format!("cannot {what} the poll supervisor {name}: {}", plain(error));
            Ok(Sample::failed(error, BootClock.now().since(begun)))
        };
        let mut run = match self.0.start(permit.tenure(), permit.instance()) {
            Ok(run) => run,
            Err(error) => return failed("start", &error, begun),
        };
        let wake = match Wake::on(permit.abort()) {
            Ok(wake) => wake,
            Err(error) => return failed("watch", &error, begun),
        };
        while !run.has_begun() && !permit.abort().is_fired() {
            let left = deadline.since(BootClock.now());
            if left.is_zero() {
                return failed("start", &io::ErrorKind::TimedOut.into(), begun);
            }
            if let Err(error) = run.step(Some(&wake), left) {
                return failed("hear", &error, begun);
            }
        }
        permit.confirm()?;
        begun = BootClock.now();
        run.feed(&session.document);
        let cause = run.finish(
            Some(&wake),
            |_| deadline,
            |now| match permit.abort().is_fired() {
                true => Some(Cause::Revoked),
                false => (now >= deadline).then_some(Cause::Late),
            },
        );
        permit.abort().disarm();
        if cause == Some(Cause::Revoked) || permit.abort().is_fired() {
            return Err(Revoked);
        }
        let ending = match cause {
            None => run.ending(),
            Some(_) => Ending::Ended(None, Some(format!("no end within {timeout:?}"))),
        };
        let (status, error) = match ending {
            Ending::Ended(status, error) => (status, error.map(|it| it + &run.last_words())),
            Ending::Short(why) => return Err(permit.defer(why)),
        };
        let (body, duration) = (std::mem::take(&mut run.body), BootClock.now().since(begun));
        Ok(Sample { ok: error.is_none(), status, error, body, duration })
    }
}
