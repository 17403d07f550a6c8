//! Tells the service manager how this instance is: `READY=1`, `WATCHDOG=1`, `STOPPING=1`.
//!
//! The protocol is a datagram to `$NOTIFY_SOCKET`; without that variable nothing is ever said.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootClock, Clock};
use crate::daemon::progress::Progress;
use crate::daemon::thread::{Stop, Thread};

/// How often readiness is looked for.
const TICK: Duration = Duration::from_millis(250);

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

    /// Says it; false when it could not be said just now. A manager that does not listen is no reason to
    /// stop.
    pub fn say(&self, state: &str) -> bool {
        self.socket.as_ref().is_none_or(|it| it.send(state.as_bytes()).is_ok())
    }
}

/// The thread `watchdog`: says when the first round is done, and vouches for the process at half the
/// manager's period, as long as every part has moved within that period, or within `patience` where a
/// part moves less often (R12).
pub fn watch(
    notifier: Arc<Notifier>,
    progress: Arc<Progress>,
    patience: Duration,
    when: Stop,
) -> io::Result<Thread> {
    let mut said_ready = false;
    let tick = notifier.watchdog.map_or(TICK, |it| TICK.min(it / 4));
    let mut vouched_at = BootClock.now();
    Thread::steps("watchdog", when, move || {
        if !said_ready && progress.is_ready() {
            said_ready = notifier.say("READY=1\nSTATUS=polling");
        }
        let now = BootClock.now();
        if let Some(period) = notifier.watchdog {
            let due = now.since(vouched_at) >= period / 2;
            if due && progress.moves(now, period.max(patience)) {
                vouched_at = now;
                notifier.say("WATCHDOG=1");
            }
        }
        tick
    })
}
