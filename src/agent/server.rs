//! Which clients have sent something, are gone, or are to be told something? The thread `agent`: one loop over all sockets.
//!
//! It never waits for Redis or for a client. A client that does not read, that sends an endless line, or that is silent for
//! longer than it allowed itself is disconnected. A client whose lines wait is not read beyond a bound until they are carried out.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use nix::poll::{PollFd, PollFlags};

use crate::agent::Shared;
use crate::agent::backlog::Backlog;
use crate::agent::client::Client;
use crate::agent::lines::{Lines, TooLong};
use crate::agent::protocol::{Bye, Push};
use crate::agent::session::Session;
use crate::agent::socket::Socket;
use crate::clock::{BootClock, Clock, Moment};
use crate::event::Event;
use crate::net::wait::wait;
use crate::thread::Thread;

/// How often the leases of all clients are looked at: a doubt about a lease makes no event.
const TICK: Duration = Duration::from_millis(100);
/// The same without clients.
const IDLE_TICK: Duration = Duration::from_secs(1);
/// Most lines of one client that wait.
const LINES_MAX: usize = 64;
/// Most bytes read from one client before the others have their turn.
const READ_MAX: usize = 4_096;
/// Most clients accepted before the others have their turn.
const ACCEPT_MAX: usize = 64;
/// How long a client that has ended its side may take to read the last answers.
const LAST_READ: Duration = Duration::from_secs(5);
/// A refusal is logged once until there was none for this long.
const REFUSAL_QUIET: Duration = Duration::from_secs(60);

/// The state of the loop.
pub(crate) struct Server {
    shared: Arc<Shared>,
    reader: UnixStream,
    /// Gone once the agent stops.
    listening: Option<(UnixListener, Socket)>,
    clients: BTreeMap<u64, Connected>,
    clients_max: usize,
    connected: u64,
    looked_at: Moment,
    accept_at: Moment,
    refused_at: Moment,
    is_stop_told: bool,
}

/// A client with its connection.
struct Connected {
    session: Arc<Session>,
    /// `None` once the connection has ended.
    stream: Option<UnixStream>,
    bytes: Lines,
    backlog: Backlog,
    /// `None` once no further line comes.
    lines: Option<Sender<Vec<u8>>>,
    /// The client has ended its side.
    has_ended: bool,
    over_at: Option<Moment>,
    _thread: Thread,
}

impl Server {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        reader: UnixStream,
        listener: UnixListener,
        socket: Socket,
        clients_max: usize,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            reader,
            listening: Some((listener, socket)),
            clients: BTreeMap::new(),
            clients_max,
            connected: 0,
            looked_at: Moment::MIN,
            accept_at: Moment::MIN,
            refused_at: Moment::MIN,
            is_stop_told: false,
        }
    }

    /// Until the agent stops and every client has gone.
    pub(crate) fn run(mut self) {
        while !(self.shared.is_stopping() && self.clients.is_empty()) {
            let ready = self.wait();
            self.step(&ready);
        }
    }

    /// Waits for something to do; the clients whose sockets are ready.
    fn wait(&self) -> Vec<(u64, PollFlags)> {
        let mut fds = vec![PollFd::new(self.reader.as_fd(), PollFlags::POLLIN)];
        let mut ids = Vec::new();
        for (id, client) in &self.clients {
            if let Some(stream) = &client.stream {
                fds.push(PollFd::new(stream.as_fd(), client.wanted()));
                ids.push(*id);
            }
        }
        let accepts = BootClock.now() >= self.accept_at;
        if let Some((listener, _)) = self.listening.as_ref().filter(|_| accepts) {
            fds.push(PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        }
        let tick = if self.clients.is_empty() && accepts { IDLE_TICK } else { TICK };
        let _ = wait(&mut fds, tick); // without an answer all sockets are tried at the next tick
        let ready = ids.iter().zip(&fds[1..]);
        let ready = ready.map(|(id, fd)| (*id, fd.revents().unwrap_or(PollFlags::empty())));
        ready.filter(|it| !it.1.is_empty()).collect()
    }

    fn step(&mut self, ready: &[(u64, PollFlags)]) {
        let has_changes = self.shared.notice.take(&self.reader);
        let now = BootClock.now();
        // First of all: a process that was frozen tells its clients what they have lost before it answers them.
        if has_changes || now.since(self.looked_at) >= TICK {
            self.looked_at = now;
            self.clients.values().for_each(|it| it.session.look(self.shared.beside()));
        }
        self.shared.moved(now);
        for (id, flags) in ready {
            if let Some(client) = self.clients.get_mut(id) {
                client.read(&self.shared, *flags, now);
            }
        }
        self.accept(now);
        self.stop(now);
        for client in self.clients.values_mut() {
            client.step(&self.shared, now);
        }
        self.clients.retain(|_, it| !it.is_done(now));
    }

    fn accept(&mut self, now: Moment) {
        for _ in 0..ACCEPT_MAX {
            let Some((listener, _)) = &self.listening else { return };
            match listener.accept() {
                Ok((stream, _)) => self.welcome(stream, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // For example, no descriptor is left.
                Err(error) => {
                    self.refuse(&error.to_string(), now);
                    self.accept_at = now + TICK;
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, mut stream: UnixStream, now: Moment) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.clients.len() >= self.clients_max {
            let _ = stream.write(format!("{}\n", Push::Bye(Bye::Full)).as_bytes());
            return self.refuse("--max-clients", now);
        }
        self.connected += 1;
        let session = Arc::new(Session::new(self.connected));
        let (lines, to_do) = bounded(LINES_MAX);
        let client = Client { shared: Arc::clone(&self.shared), session: Arc::clone(&session) };
        let thread = Thread::spawn("agent-client", move || client.run(&to_do));
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => return self.refuse(&error.to_string(), now),
        };
        Event::AgentClientConnected { client: session.id }.log(self.shared.instance());
        let client = Connected {
            session,
            stream: Some(stream),
            bytes: Lines::default(),
            backlog: Backlog::default(),
            lines: Some(lines),
            has_ended: false,
            over_at: None,
            _thread: thread,
        };
        self.clients.insert(self.connected, client);
    }

    fn refuse(&mut self, reason: &str, now: Moment) {
        let was_quiet = now.since(self.refused_at) >= REFUSAL_QUIET;
        self.refused_at = now;
        if was_quiet {
            Event::AgentClientRefused { reason }.log(self.shared.instance());
        }
    }

    fn stop(&mut self, now: Moment) {
        if !self.shared.is_stopping() {
            return;
        }
        self.listening = None;
        let stops_at = self.shared.stops_at();
        let is_told = std::mem::replace(&mut self.is_stop_told, true);
        for client in self.clients.values_mut() {
            if !is_told {
                client.session.tell_stop(now, stops_at);
            }
            if now >= stops_at || self.shared.is_hurried() {
                client.evict(&self.shared, Bye::Stopping);
            }
        }
    }
}

impl Connected {
    /// What to wait for. The end of the other side is always told.
    fn wanted(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        if !self.has_ended && self.backlog.has_room() {
            flags |= PollFlags::POLLIN;
        }
        if self.session.has_unsent() {
            flags |= PollFlags::POLLOUT;
        }
        flags
    }

    fn read(&mut self, shared: &Shared, flags: PollFlags, now: Moment) {
        // Both sides have ended: the client is dead, or has closed. What it said last does not count.
        if flags.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
            return self.gone(shared);
        }
        let Some(stream) = self.stream.as_mut().filter(|_| flags.contains(PollFlags::POLLIN))
        else {
            return;
        };
        let mut bytes = [0; READ_MAX];
        match stream.read(&mut bytes) {
            Ok(0) => {
                self.has_ended = true;
                self.session.close();
                call_off(&self.session, shared);
            }
            Ok(read) => {
                self.session.heard(now);
                self.bytes.push(&bytes[..read]);
            }
            Err(error) if is_passing(&error) => (),
            Err(_) => self.gone(shared),
        }
    }

    /// Passes lines on, and sends what waits.
    fn step(&mut self, shared: &Shared, now: Moment) {
        if self.stream.is_none() {
            return;
        }
        if self.pass_on() == Err(TooLong) {
            self.evict(shared, Bye::Line);
        }
        if let Some(bye) = self.session.due_bye(now) {
            self.evict(shared, bye);
        }
        if self.send().is_err() {
            self.gone(shared);
        }
    }

    fn pass_on(&mut self) -> Result<(), TooLong> {
        while let Some(lines) = &self.lines {
            // No other thread sends: there is still room in the next moment.
            if !lines.is_full()
                && let Some(line) = self.backlog.pop()
            {
                if lines.try_send(line).is_err() {
                    self.lines = None; // the client's thread has ended
                }
                continue;
            }
            if !self.backlog.has_room() {
                return Ok(());
            }
            match self.bytes.next()? {
                Some(line) => self.backlog.push(line),
                None => {
                    if self.has_ended && self.backlog.is_empty() {
                        self.lines = None;
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut failed = Ok(());
        self.session.send(|bytes| match stream.write(bytes) {
            Ok(sent) => sent,
            Err(error) => {
                if !is_passing(&error) {
                    failed = Err(error);
                }
                0
            }
        });
        failed
    }

    /// The client has gone: what it held is given back at once.
    fn gone(&mut self, shared: &Shared) {
        self.end(shared);
    }

    /// The agent ends the connection: the client may be there, and count on what it was told.
    fn evict(&mut self, shared: &Shared, why: Bye) {
        if self.stream.is_some() {
            self.session.evict(why);
            let _ = self.send();
            self.end(shared);
        }
    }

    fn end(&mut self, shared: &Shared) {
        self.stream = None;
        (self.lines, self.backlog) = (None, Backlog::default());
        self.session.gone();
        call_off(&self.session, shared);
    }

    fn is_done(&mut self, now: Moment) -> bool {
        if !self.session.is_over() {
            return false;
        }
        let over_at = *self.over_at.get_or_insert(now);
        let is_sent = self.stream.is_none() || !self.session.has_unsent();
        is_sent || now.since(over_at) >= LAST_READ
    }
}

/// Ends the wait of the client's thread.
fn call_off(session: &Session, shared: &Shared) {
    if let Some(name) = session.waits_for() {
        shared.places.wake(&name, session.id);
        shared.manager.wake_waiting(&name);
    }
}

/// Whether the socket is to be tried again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
