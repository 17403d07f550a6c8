//! What other clients make of the same target: `ab`, which is about the ceiling, and a loop of Python's `requests`.
//!
//! Each is a process of its own with as many requests under way as the instance has workers, and without keep-alive, as polls
//! are. A client that is not there is left out.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::thread::Stop;

use crate::target::Target;

/// Longer than any window: both are killed.
const FOR_S: &str = "60";
/// Until an interpreter has started.
const STARTED: Duration = Duration::from_secs(20);
/// Addresses that Python polls: each connection takes a port away from its address for a while.
const ADDRESSES: u32 = 64;
const LOOP: &str = "benches/numbers/requests_loop.py";

/// A client that is not ours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    Ab,
    Requests,
}

/// Polls a second, and microseconds of CPU of the client for each.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) rate: f64,
    pub(crate) client: f64,
}

impl Other {
    pub(crate) const ALL: [Self; 2] = [Self::Ab, Self::Requests];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ab => "ab",
            Self::Requests => "Python requests",
        }
    }

    /// Why it cannot be measured here, if it cannot.
    pub(crate) fn missing(self) -> Option<&'static str> {
        let (mut probe, sentence) = match self {
            Self::Ab => {
                let mut ab = Command::new("ab");
                ab.arg("-V");
                (ab, "no ab here (apache2-utils): it is left out")
            }
            Self::Requests => {
                let mut python = Command::new(python());
                python.args(["-c", "import requests"]);
                (python, "no requests for Python below target/bench: it is left out")
            }
        };
        let said = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
        (!said.is_ok_and(|it| it.success())).then_some(sentence)
    }

    fn command(self, target: &Target, at_once: usize, turn: u32) -> Command {
        let at_once = at_once.to_string();
        let url = |n: u32| format!("http://{}/", target.address(n));
        match self {
            Self::Ab => {
                let mut ab = Command::new("ab");
                ab.args(["-q", "-r", "-c", &at_once, "-t", FOR_S, "-n", "100000000"]);
                ab.args(["-H", "Connection: close"]).arg(url(turn));
                ab
            }
            Self::Requests => {
                let mut python = Command::new(python());
                python.arg(LOOP).arg(at_once).args((0..ADDRESSES).map(url));
                python
            }
        }
    }

    /// What it does to `target` within `window`.
    pub(crate) fn measure(
        self,
        target: &Target,
        at_once: usize,
        turn: u32,
        window: Duration,
        never: &Stop,
    ) -> io::Result<Spent> {
        let mut command = self.command(target, at_once, turn);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let before = target.answers();
        let client = Client(command.spawn()?);
        let deadline = BootClock.now() + STARTED;
        while target.answers() < before + 200 {
            if BootClock.now() > deadline {
                return Err(io::Error::other(format!("{} asks nothing", self.name())));
            }
            let _ = never.within(Duration::from_millis(20));
        }
        let (cpu, answers, began) = (client.cpu()?, target.answers(), BootClock.now());
        let _ = never.within(window);
        let (cpu, answers) = (client.cpu()? - cpu, target.answers() - answers);
        let took = BootClock.now().since(began).as_secs_f64();
        let polls = u32::try_from(answers).map_or(f64::NAN, f64::from).max(1.0);
        Ok(Spent { rate: polls / took, client: cpu * 1e6 / polls })
    }
}

/// That of `make bench`, with `requests`.
fn python() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    target.join(Path::new("bench/venv/bin/python"))
}

/// Killed when dropped.
struct Client(Child);

impl Client {
    /// Seconds of CPU so far, of threads that have ended, too.
    fn cpu(&self) -> io::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields = stat.rsplit_once(") ").map_or("", |it| it.1).split(' ').skip(11).take(2);
        Ok(fields.filter_map(|it| it.parse::<f64>().ok()).sum::<f64>() / 100.0)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
