//! Tells the service manager how this instance is: `READY=1`, `STATUS=`, `WATCHDOG=1`, `STOPPING=1`.
//!
//! The protocol is a datagram to `$NOTIFY_SOCKET`; without that variable nothing is ever said.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::event::Event;
use crate::instance::status_line::{LifecyclePhase, StatusLine};
use crate::model::InstanceId;
use crate::thread::{Stop, Thread};

/// How often readiness is checked.
const TICK: Duration = Duration::from_millis(250);
/// How often the status line is computed.
const LOOK: Duration = Duration::from_millis(900);
/// How much more time is asked for at once. Short: one that hangs is asked for no more.
const EXTENSION: Duration = Duration::from_secs(15);

/// A way to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// From the variables that the manager sets.
    pub fn new(socket: Option<&OsStr>, watchdog_usec: Option<&OsStr>) -> io::Result<Self> {
        let Some(name) = socket.filter(|it| !it.is_empty()) else { return Ok(Self::default()) };
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect_addr(&address)?;
        let usec = watchdog_usec.and_then(OsStr::to_str).and_then(|it| it.parse().ok());
        let watchdog = usec.filter(|it| *it > 0).map(Duration::from_micros);
        Ok(Self { socket: Some(socket), watchdog })
    }

    /// The service manager of this process, if it has one.
    pub(crate) fn of_environment(me: &InstanceId) -> Self {
        let (socket, period) = (env::var_os("NOTIFY_SOCKET"), env::var_os("WATCHDOG_USEC"));
        Self::new(socket.as_deref(), period.as_deref()).unwrap_or_else(|error| {
            // One that does not listen is no reason not to start.
            Event::ManagerUnreachable { error: &error }.log(me);
            Self::default()
        })
    }

    /// How often the manager wants to hear that this process moves.
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Sends `state`; false if it could not be sent. A manager that does not listen is no reason to stop.
    pub fn notify(&self, state: &str) -> bool {
        self.socket.as_ref().is_none_or(|it| it.send(state.as_bytes()).is_ok())
    }
}

/// The thread `watchdog`: says when the first round is done, and vouches for the process at half the
/// manager's period, as long as every part moves (R12). Tells how the instance is whenever that changes,
/// and asks for more time where a start or a stop has to wait.
pub fn watch(
    notifier: Arc<Notifier>,
    status_line: Arc<StatusLine>,
    when: Stop,
) -> io::Result<Thread> {
    let tick = notifier.watchdog.map_or(TICK, |it| TICK.min(it / 4));
    let mut watchdog = Watchdog {
        notifier,
        status_line,
        said_ready: false,
        said: String::new(),
        looked_at: Moment::MIN,
        extended_at: Moment::MIN,
        drains: false,
        vouched_at: BootClock.now(),
    };
    Thread::steps("watchdog", when, move || {
        watchdog.step(BootClock.now());
        tick
    })
}

struct Watchdog {
    notifier: Arc<Notifier>,
    status_line: Arc<StatusLine>,
    said_ready: bool,
    said: String,
    looked_at: Moment,
    extended_at: Moment,
    drains: bool,
    vouched_at: Moment,
}

impl Watchdog {
    fn step(&mut self, now: Moment) {
        let phase = self.status_line.phase();
        if !self.said_ready
            && matches!(&phase, LifecyclePhase::Running(_, liveness) if liveness.is_ready())
        {
            self.said = self.status_line.sentence(now);
            self.said_ready = self.notifier.notify(&format!("READY=1\nSTATUS={}", self.said));
        }
        let drains = matches!(phase, LifecyclePhase::Draining(..));
        if drains && !std::mem::replace(&mut self.drains, true) {
            (self.looked_at, self.extended_at) = (Moment::MIN, Moment::MIN);
        }
        self.tell(now);
        let moves = |period| self.status_line.makes_progress(now, period);
        let waits = !self.said_ready || drains;
        if waits && now.since(self.extended_at) >= EXTENSION / 3 && moves(EXTENSION) {
            self.extended_at = now;
            self.notifier.notify(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
        }
        if let Some(period) = self.notifier.watchdog {
            let due = now.since(self.vouched_at) >= period / 2;
            if due && moves(period) {
                self.vouched_at = now;
                self.notifier.notify("WATCHDOG=1");
            }
        }
    }

    /// Says the sentence if it is another than before.
    fn tell(&mut self, now: Moment) {
        if self.notifier.socket.is_none() || now.since(self.looked_at) < LOOK {
            return;
        }
        self.looked_at = now;
        let sentence = self.status_line.sentence(now);
        if sentence != self.said && self.notifier.notify(&format!("STATUS={sentence}")) {
            self.said = sentence;
        }
    }
}
