//! Which leases and roles do other programs of this host hold? A line protocol on a socket; the connection is the session.
//!
//! | file | question it answers |
//! |---|---|
//! | `protocol.rs` | what does a client say, and what is it told: pure |
//! | `lines.rs` | where does a line end: pure |
//! | `backlog.rs` | which lines found no room yet: pure |
//! | `promise.rs` | until when may a client take itself for the holder: pure |
//! | `socket.rs` | where do clients connect |
//! | `server.rs` | which clients have sent something, are gone, or are to be told something: the thread `agent` |
//! | `client.rs` | what does the agent do for one client: a thread for each |
//! | `session.rs` | what does one client hold, and what has it been told |
//! | `candidacy.rs` | what is one client for a role |
//! | `places.rs`, `role_lines.rs` | which client of this agent is next for a lease, and for a role |
//!
//! A `LeaseManager` and the `Elections` of the process hold everything. They know one instance. Two clients are two holders,
//! so the agent lets one client at a time hold or ask for a name, and stand for a role.
//!
//! Lock order: the session, then the lines, then what the manager and the elections lock. No lock is held across I/O.

mod backlog;
mod candidacy;
mod client;
mod lines;
mod places;
mod promise;
mod protocol;
mod role_lines;
mod server;
mod session;
mod socket;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, select};

use crate::agent::places::Places;
use crate::agent::role_lines::{Candidates, RoleLines};
use crate::agent::server::Server;
use crate::agent::session::Beside;
use crate::agent::socket::Socket;
use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::election::Elections;
use crate::event::Event;
use crate::manager::LeaseManager;
use crate::model::InstanceId;
use crate::thread::{Stop, StopSource, Thread, stop};

/// Where an agent listens, and to how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentSettings {
    pub(crate) socket: PathBuf,
    pub(crate) mode: u32,
    pub(crate) clients_max: usize,
}

/// What the threads of an agent share.
pub(crate) struct Shared {
    pub(crate) manager: LeaseManager,
    pub(crate) lease_ttl: Duration,
    pub(crate) places: Places,
    pub(crate) roles: Arc<RoleLines>,
    pub(crate) notice: Arc<Notice>,
    /// When the agent stops, in nanoseconds of the clock.
    stops_at: AtomicU64,
    is_hurried: AtomicBool,
    /// When the thread `agent` moved last.
    moved_at: AtomicU64,
}

impl Shared {
    pub(crate) fn beside(&self) -> Beside<'_> {
        Beside { places: &self.places, roles: &self.roles }
    }

    pub(crate) fn instance(&self) -> &InstanceId {
        self.manager.instance_id()
    }

    pub(crate) fn stops_at(&self) -> Moment {
        Moment::from_nanos(self.stops_at.load(Ordering::Acquire))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stops_at() < Moment::MAX
    }

    pub(crate) fn is_hurried(&self) -> bool {
        self.is_hurried.load(Ordering::Acquire)
    }

    pub(crate) fn moved(&self, now: Moment) {
        self.moved_at.store(now.as_nanos(), Ordering::Release);
    }
}

/// Wakes the thread `agent`.
pub(crate) struct Notice {
    writer: UnixStream,
    is_pending: AtomicBool,
    has_changes: AtomicBool,
}

impl Notice {
    /// The notice, and what can be read when it was given.
    fn new() -> io::Result<(Arc<Self>, UnixStream)> {
        let (writer, reader) = UnixStream::pair()?;
        writer.set_nonblocking(true)?;
        reader.set_nonblocking(true)?;
        let (is_pending, has_changes) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok((Arc::new(Self { writer, is_pending, has_changes }), reader))
    }

    /// There is something to send, to end or to read.
    pub(crate) fn now(&self) {
        if !self.is_pending.swap(true, Ordering::AcqRel) {
            let _ = (&self.writer).write(&[1]); // one that waits is enough
        }
    }

    /// A lease or a role has changed.
    pub(crate) fn changed(&self) {
        self.has_changes.store(true, Ordering::Release);
        self.now();
    }

    /// Whether a lease or a role has changed since the last time.
    pub(crate) fn take(&self, mut reader: &UnixStream) -> bool {
        let _ = reader.read(&mut [0; 64]);
        self.is_pending.store(false, Ordering::Release);
        self.has_changes.swap(false, Ordering::AcqRel)
    }
}

/// A running agent.
pub(crate) struct Agent {
    shared: Arc<Shared>,
    server: Thread,
    ended: Receiver<()>,
    candidates: (StopSource, Thread),
    elections: Elections,
}

impl Agent {
    /// Listens. A process that can write to the socket can hold everything that `manager` and `elections` can.
    pub(crate) fn start(
        config: &Config,
        how: &AgentSettings,
        manager: LeaseManager,
        elections: Elections,
    ) -> Result<Self, String> {
        let thread = |error: io::Error| format!("cannot start a thread: {error}");
        let (notice, reader) = Notice::new().map_err(|it| format!("cannot make a socket: {it}"))?;
        let (socket, listener) = Socket::listen(&how.socket, how.mode)?;
        let roles = Arc::new(RoleLines::new());
        let shared = Arc::new(Shared {
            manager,
            lease_ttl: config.lease_ttl,
            places: Places::default(),
            roles: Arc::clone(&roles),
            notice: Arc::clone(&notice),
            stops_at: AtomicU64::new(Moment::MAX.as_nanos()),
            is_hurried: AtomicBool::new(false),
            moved_at: AtomicU64::new(BootClock.now().as_nanos()),
        });
        let told = Arc::clone(&notice);
        let _stays = shared.manager.on_lost(move |_| told.changed()).map_err(thread)?;
        let candidates = Candidates {
            lines: roles,
            elections: elections.clone(),
            config: config.clone(),
            notice: Arc::new(move || notice.changed()),
            failed: BTreeSet::new(),
        };
        let (source, when) = stop();
        let candidates = Thread::spawn("agent-roles", move || candidates.run(&when));
        let candidates = (source, candidates.map_err(thread)?);
        let (alive, ended) = bounded(0);
        let server = Server::new(&shared, reader, listener, socket, how.clients_max);
        let body = move || {
            let _alive = alive;
            server.run();
        };
        let server = Thread::spawn("agent", body).map_err(thread)?;
        let socket = how.socket.display();
        Event::AgentListening { socket: &socket }.log(shared.instance());
        Ok(Self { shared, server, ended, candidates, elections })
    }

    /// When the thread that serves the clients moved last; once a second when all is well.
    pub(crate) fn moved_at(&self) -> Moment {
        Moment::from_nanos(self.shared.moved_at.load(Ordering::Acquire))
    }

    /// The thread that panicked, if one has (R12): nothing is held or granted any more.
    pub(crate) fn failure(&self) -> Option<String> {
        let leases = self.shared.manager.failure().map(ToString::to_string);
        leases.or_else(|| self.elections.failure().map(ToString::to_string))
    }

    /// Tells all clients to finish, and waits for them for `patience`. Then it ends the connections that are left, and gives
    /// back what their clients held once nothing is left of what they were told. A hurry ends that wait.
    pub(crate) fn stop(self, patience: Duration, hurry: &Stop) {
        let Self { shared, server, ended, candidates, elections } = self;
        let stops_at = BootClock.now() + patience;
        shared.stops_at.store(stops_at.as_nanos(), Ordering::Release);
        shared.notice.now();
        select! {
            recv(ended) -> _ => (),
            recv(hurry.receiver()) -> _ => {
                shared.is_hurried.store(true, Ordering::Release);
                shared.notice.now();
            },
        }
        drop((server, candidates.0, candidates.1)); // waits for their ends
        drop((elections, shared)); // gives back whatever is left
    }
}
