//! What is polled: a server that answers at once, and one that takes a connection and never says a word.
//!
//! One thread each, because its CPU is taken from the fleet's.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::thread::{Stop, StopSource, Thread, stop};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
/// Longer than any poll waits.
const HELD_FOR: Duration = Duration::from_secs(15);
/// What hangs is in this many networks, so that no cap of a single network binds: one dead network is another question.
const NETWORKS: u32 = 200;
/// How often a thread looks whether it is to end.
const TICK: Duration = Duration::from_millis(500);

/// Both servers, until dropped.
pub(crate) struct Target {
    pub(crate) answers: SocketAddr,
    hangs: u16,
    answered: Arc<AtomicU64>,
    hung: Arc<AtomicU64>,
    // The source first: the threads wait for it.
    _stop: StopSource,
    _threads: [Thread; 2],
}

impl Target {
    pub(crate) fn start() -> io::Result<Self> {
        let (source, until) = stop();
        let (answers, hangs) = (listen([127, 0, 0, 1])?, listen([0, 0, 0, 0])?);
        let addresses = (answers.local_addr()?, hangs.local_addr()?);
        let (answered, hung) = (Arc::default(), Arc::default());
        let (count, when) = (Arc::clone(&answered), until.clone());
        let first = Thread::spawn("answers", move || answer(&answers, &count, &when))?;
        let count = Arc::clone(&hung);
        let second = Thread::spawn("hangs", move || hang(&hangs, &count, &until))?;
        Ok(Self {
            answers: addresses.0,
            hangs: addresses.1.port(),
            answered,
            hung,
            _stop: source,
            _threads: [first, second],
        })
    }

    /// Where the `n`th endpoint hangs.
    pub(crate) fn hangs(&self, n: u32) -> SocketAddr {
        let network = u8::try_from(n / 10 % NETWORKS).unwrap_or_default();
        SocketAddr::from(([127, 3, network, 1], self.hangs))
    }

    /// How many polls came, to both.
    pub(crate) fn polls(&self) -> u64 {
        self.answered.load(Ordering::Relaxed) + self.hung.load(Ordering::Relaxed)
    }
}

fn listen(ip: [u8; 4]) -> io::Result<TcpListener> {
    let listener = testkit::target::listen(SocketAddr::from((ip, 0)))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Waits for the listener or one of `open`.
fn wait(listener: &TcpListener, open: &[TcpStream]) {
    let fd = |it| PollFd::new(it, PollFlags::POLLIN);
    let mut fds = vec![fd(listener.as_fd())];
    fds.extend(open.iter().map(|it| fd(it.as_fd())));
    let tick = PollTimeout::try_from(TICK).unwrap_or(PollTimeout::NONE);
    let _ = poll(&mut fds, tick); // whatever comes of it, all are tried
}

fn answer(listener: &TcpListener, count: &AtomicU64, until: &Stop) {
    let mut open: Vec<TcpStream> = Vec::new();
    let mut request = [0; 4_096];
    while !until.within(Duration::ZERO) {
        wait(listener, &open);
        while let Ok((stream, _)) = listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                open.push(stream);
            }
        }
        // A request fits into a segment.
        open.retain_mut(|it| match it.read(&mut request) {
            Ok(1..) => {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = it.write_all(ANSWER);
                false
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
            Ok(0) => false,
        });
    }
}

fn hang(listener: &TcpListener, count: &AtomicU64, until: &Stop) {
    let mut held = VecDeque::new();
    while !until.within(Duration::ZERO) {
        wait(listener, &[]);
        let now = BootClock.now();
        while let Ok((stream, _)) = listener.accept() {
            count.fetch_add(1, Ordering::Relaxed);
            held.push_back((now, stream));
        }
        while held.front().is_some_and(|it| now.since(it.0) > HELD_FOR) {
            held.pop_front();
        }
    }
}
