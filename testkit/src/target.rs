//! The judge: an HTTP server that sees every poll, and knows whether two of one endpoint ever met.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

/// One poll, as the endpoint saw it.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub instance: String,
    pub fence: u64,
    /// When its first byte arrived.
    pub start: Instant,
    /// When the answer was sent, or the poller hung up.
    pub end: Option<Instant>,
}

/// How an endpoint answers.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub delay: Duration,
    /// Never answers; ends when the poller hangs up.
    pub hang: bool,
    pub body: String,
    /// Goes on with the body until the poller hangs up.
    pub endless: bool,
    /// Between two pieces of an endless body.
    pub pause: Duration,
}

impl Default for Answer {
    fn default() -> Self {
        let (delay, body) = (Duration::ZERO, "fine".into());
        Self { status: 200, delay, hang: false, body, endless: false, pause: Duration::ZERO }
    }
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    answers: BTreeMap<String, Answer>,
    /// The polls that have no end yet, by path: when each began, and its connection.
    open: BTreeMap<String, Vec<(Instant, Arc<TcpStream>)>>,
}

/// On a busy machine the thread that serves a poll learns late that the poller has hung up. So the thread that has read the
/// first byte of the next poll asks the kernel whether the earlier connection is over. The answer counts only within this time
/// after the first byte: later, it would say nothing about the beginning of the next poll.
const LOOK_WITHIN: Duration = Duration::from_millis(1);

impl State {
    /// Ends the polls of `path` that were over when a poll of it began at `start`.
    fn end_those_over(&mut self, path: &str, start: Instant) {
        for (began, stream) in self.open.get(path).into_iter().flatten() {
            let is_over = has_hung_up(stream);
            if is_over && start.elapsed() < LOOK_WITHIN {
                let mine = |it: &&mut Request| it.start == *began && it.path == path;
                let request = self.requests.iter_mut().rev().find(mine);
                request.map(|it| it.end.get_or_insert(start));
            }
        }
    }

    fn close(&mut self, path: &str, start: Instant) {
        let Some(open) = self.open.get_mut(path) else { return };
        open.retain(|it| it.0 != start);
        if open.is_empty() {
            self.open.remove(path);
        }
    }
}

/// A poller sends nothing behind its request, so what can be read is the end.
fn has_hung_up(stream: &TcpStream) -> bool {
    let over = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
    let mut fds = [PollFd::new(stream.as_fd(), over)];
    let told = nix::poll::poll(&mut fds, PollTimeout::ZERO);
    told.is_ok() && fds[0].revents().is_some_and(|it| it.intersects(over))
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// An address at which a target answers. Once it is dropped, connections to that address are refused.
pub struct Door {
    address: SocketAddr,
    is_shut: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Door {
    fn open(address: impl ToSocketAddrs, shared: &Arc<Shared>) -> Self {
        let listener = listen(address.to_socket_addrs().unwrap().next().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let is_shut = Arc::<AtomicBool>::default();
        let (shared, shut) = (Arc::clone(shared), Arc::clone(&is_shut));
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shut.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Self { address, is_shut, accepting: Some(accepting) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.is_shut.store(true, Ordering::SeqCst);
        // Not from another network namespace: then nothing wakes the thread that accepts.
        if TcpStream::connect(self.address).is_ok() {
            drop(self.accepting.take().map(JoinHandle::join));
        }
    }
}

/// With a long queue: where it is full the kernel drops the connect, and the poller begins again a second later. The listeners of
/// the standard library have room for 128.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(4_096)?;
    Ok(socket.into())
}

/// Answers on a port of its own until dropped.
pub struct Target {
    began: Instant,
    shared: Arc<Shared>,
    door: Door,
}

impl Target {
    pub fn start() -> Self {
        Self::start_on("127.0.0.1")
    }

    /// At an address of this machine that pollers elsewhere can reach, too.
    pub fn start_on(ip: &str) -> Self {
        let shared = Arc::<Shared>::default();
        let door = Door::open((ip, 0), &shared);
        Self { began: Instant::now(), shared, door }
    }

    /// A further address, with the same record and the same answers.
    pub fn open(&self, address: impl ToSocketAddrs) -> Door {
        Door::open(address, &self.shared)
    }

    pub fn address(&self) -> String {
        self.door.address().to_string()
    }

    /// The record of an endpoint that is polled here, under a path of its own.
    pub fn session(&self, id: &str) -> Value {
        json!({"id": id, "name": id, "address": self.address(), "path": format!("/{id}")})
    }

    /// How `endpoint` answers from now on.
    pub fn answer(&self, endpoint: &str, answer: Answer) {
        self.shared.state.lock().answers.insert(format!("/{endpoint}"), answer);
    }

    pub fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().requests.clone()
    }

    /// Forgets the polls that ended before `at`, except for the last one of each endpoint, so that a long run needs no more
    /// memory than a short one. Says how many it forgot. Judge what is forgotten before.
    pub fn forget_before(&self, at: Instant) -> usize {
        let mut state = self.shared.state.lock();
        let mut last: BTreeMap<String, Instant> = BTreeMap::new();
        for request in &state.requests {
            last.insert(request.path.clone(), request.start);
        }
        let before = state.requests.len();
        let is_over = |it: &Request| it.end.is_some_and(|end| end < at);
        state.requests.retain(|it| !is_over(it) || last.get(&it.path) == Some(&it.start));
        before - state.requests.len()
    }

    /// Polls of one endpoint, in the order in which they came.
    pub fn polls(&self, endpoint: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|it| it.path == format!("/{endpoint}")).collect()
    }

    pub fn polls_of(&self, instance: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|it| it.instance == instance).collect()
    }

    /// The longest time within `span` in which no poll of `endpoint` began.
    pub fn longest_gap(&self, endpoint: &str, span: Range<Instant>) -> Duration {
        let starts = self.polls(endpoint).into_iter().map(|it| it.start);
        let mut last = span.start;
        let mut longest = Duration::ZERO;
        for at in starts.filter(|it| span.contains(it)).chain([span.end]) {
            longest = longest.max(at - last);
            last = at;
        }
        longest
    }

    /// Waits until `condition` holds of what was seen; the story so far if it never does.
    #[track_caller]
    pub fn wait_until(
        &self,
        limit: Duration,
        what: &str,
        mut condition: impl FnMut(&[Request]) -> bool,
    ) {
        let deadline = Instant::now() + limit;
        let mut state = self.shared.state.lock();
        while !condition(&state.requests) {
            if Instant::now() >= deadline {
                drop(state);
                panic!("not within {limit:?}: {what}\n{}", self.story());
            }
            let again = deadline.min(Instant::now() + Duration::from_millis(100));
            self.shared.changed.wait_until(&mut state, again);
        }
    }

    /// Waits until every one of `endpoints` was polled after `since`.
    #[track_caller]
    pub fn wait_for_polls(&self, endpoints: &[String], since: Instant, limit: Duration) {
        let what = format!("polls of each of {endpoints:?}");
        self.wait_until(limit, &what, |requests| {
            endpoints.iter().all(|endpoint| {
                let path = format!("/{endpoint}");
                requests.iter().rev().any(|it| it.path == path && it.start >= since)
            })
        });
    }

    /// Watches for `duration`: for what must not happen.
    pub fn observe(&self, duration: Duration) {
        let deadline = Instant::now() + duration;
        let mut state = self.shared.state.lock();
        while Instant::now() < deadline {
            self.shared.changed.wait_until(&mut state, deadline);
        }
    }

    /// Polls of one endpoint that met, by whomever they were.
    pub fn overlaps(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut last: BTreeMap<String, Request> = BTreeMap::new();
        for request in self.requests() {
            if let Some(before) = last.get(&request.path)
                && before.end.is_none_or(|it| it > request.start)
            {
                found.push(format!("{} and {}", self.line(before), self.line(&request)));
            }
            let ends_later =
                last.get(&request.path).is_none_or(|it| it.end.is_some() && it.end <= request.end);
            if ends_later || request.end.is_none() {
                last.insert(request.path.clone(), request);
            }
        }
        found
    }

    /// Polls under an older grant than one that was already seen.
    pub fn fence_regressions(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut highest: BTreeMap<String, Request> = BTreeMap::new();
        for request in self.requests() {
            match highest.get(&request.path) {
                Some(before) if before.fence > request.fence => {
                    found.push(format!("{} after {}", self.line(&request), self.line(before)));
                }
                _ => drop(highest.insert(request.path.clone(), request)),
            }
        }
        found
    }

    /// SC-001: no poll ran together with, or after, a poll under a newer grant.
    #[track_caller]
    pub fn assert_sound(&self) {
        let (overlaps, regressions) = (self.overlaps(), self.fence_regressions());
        assert!(overlaps.is_empty(), "polls overlap: {overlaps:#?}\n{}", self.story());
        assert!(regressions.is_empty(), "fences fall: {regressions:#?}\n{}", self.story());
        let nameless = self.requests().iter().any(|it| it.instance.is_empty() || it.fence == 0);
        assert!(!nameless, "a poll without its headers");
    }

    /// The last polls of every endpoint, a line each.
    pub fn story(&self) -> String {
        let requests = self.requests();
        let last = &requests[requests.len().saturating_sub(60)..];
        last.iter().map(|it| self.line(it) + "\n").collect()
    }

    fn line(&self, request: &Request) -> String {
        let Request { path, instance, fence, start, end } = request;
        let at = |it: Instant| it.saturating_duration_since(self.began).as_secs_f64();
        let end = end.map_or("…".into(), |it| format!("{:.3}", at(it)));
        format!("{path} {:.3}–{end} by {instance} fence {fence}", at(*start))
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let stream = Arc::new(stream);
        let mut head = Vec::new();
        let mut buffer = [0; 2_048];
        let mut start = None;
        while !head.windows(4).any(|it| it == b"\r\n\r\n") {
            match (&*stream).read(&mut buffer) {
                Ok(n) if n > 0 => {
                    start.get_or_insert_with(Instant::now);
                    head.extend_from_slice(&buffer[..n]);
                }
                _ => return,
            }
        }
        let Some(start) = start else { return };
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or("").to_owned();
        let instance = header(&head, "x-leasehold-instance");
        let fence = header(&head, "x-leasehold-fence").parse().unwrap_or(0);
        let mut state = self.state.lock();
        state.end_those_over(&path, start);
        state.open.entry(path.clone()).or_default().push((start, Arc::clone(&stream)));
        let answer = state.answers.get(&path).cloned().unwrap_or_default();
        let request = Request { path, instance, fence, start, end: None };
        let index = state.requests.partition_point(|it| it.start <= request.start);
        state.requests.insert(index, request.clone());
        drop(state);
        self.changed.notify_all();
        let end = respond(&stream, &answer);
        let mut state = self.state.lock();
        let mine = |it: &&mut Request| it.start == request.start && it.path == request.path;
        state.requests.iter_mut().rev().find(mine).unwrap().end.get_or_insert(end);
        state.close(&request.path, request.start);
        drop(state);
        self.changed.notify_all();
    }
}

fn header(head: &str, name: &str) -> String {
    let value = head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_default()
}

/// Answers; the moment at which the poll was over. Before the answer is sent: what the poller does
/// with it can only come later.
fn respond(mut stream: &TcpStream, answer: &Answer) -> Instant {
    if answer.hang || !answer.delay.is_zero() {
        let patience = (!answer.hang).then_some(answer.delay);
        stream.set_read_timeout(patience).unwrap();
        if !matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        {
            return Instant::now(); // hung up
        }
    }
    let Answer { status, body, .. } = answer;
    let length =
        if answer.endless { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let end = Instant::now();
    let text = format!("HTTP/1.1 {status} Said\r\n{length}Connection: close\r\n\r\n{body}");
    let mut sent = stream.write_all(text.as_bytes());
    while answer.endless && sent.is_ok() {
        std::thread::sleep(answer.pause);
        let piece = if answer.pause.is_zero() { 4_096 } else { 1 };
        sent = stream.write_all(&vec![b'x'; piece]);
    }
    if answer.endless { Instant::now() } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins a poll; it ends when the answer has come.
    fn begin(target: &Target, fence: u64) -> TcpStream {
        let seen = target.requests().len();
        let mut stream = TcpStream::connect(target.address()).unwrap();
        let head = format!(
            "GET /e1 HTTP/1.1\r\nX-Leasehold-Instance: a\r\nX-Leasehold-Fence: {fence}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        target.wait_until(Duration::from_secs(5), "a poll", |it| it.len() > seen);
        stream
    }

    fn finish(mut stream: TcpStream) {
        drop(stream.read_to_end(&mut Vec::new()));
    }

    #[test]
    fn the_judge_sees_two_polls_that_meet_and_a_fence_that_falls() {
        let target = Target::start();
        finish(begin(&target, 2));
        finish(begin(&target, 2));
        assert_eq!((target.overlaps().len(), target.fence_regressions().len()), (0, 0));
        finish(begin(&target, 1));
        assert_eq!((target.overlaps().len(), target.fence_regressions().len()), (0, 1));
        target.answer("e1", Answer { hang: true, ..Answer::default() });
        let hanging = begin(&target, 3);
        target.answer("e1", Answer::default());
        finish(begin(&target, 3));
        finish(begin(&target, 3));
        assert_eq!(target.overlaps().len(), 2, "{}", target.story());
        drop(hanging);
    }

    /// The thread of the first poll is not asked: on a busy machine it learns late that its poller has gone.
    #[test]
    fn a_poller_that_has_hung_up_is_over_however_late_that_is_noticed() {
        let target = Target::start();
        target.answer("e1", Answer { hang: true, ..Answer::default() });
        let hanging = begin(&target, 1);
        let later = |state: &mut State| {
            let start = Instant::now();
            state.end_those_over("/e1", start);
            (start, state.requests[0].end)
        };
        let mut state = target.shared.state.lock(); // the thread of the poll cannot note its end
        assert_eq!(later(&mut state).1, None, "it has not hung up");
        drop(hanging);
        let deadline = Instant::now() + Duration::from_secs(5);
        let (mut start, mut end) = later(&mut state);
        while end.is_none() && Instant::now() < deadline {
            (start, end) = later(&mut state);
        }
        assert_eq!(end, Some(start));
        assert_eq!(state.open.len(), 1, "its thread does not know yet");
    }

    #[test]
    fn what_is_forgotten_hides_neither_a_fence_that_falls_nor_a_poll_that_runs() {
        let target = Target::start();
        let ended = |n: usize| {
            target.wait_until(Duration::from_secs(5), "its end", |it| {
                it.iter().filter(|it| it.end.is_some()).count() == n
            });
        };
        (1..=3).for_each(|fence| finish(begin(&target, fence)));
        ended(3);
        assert_eq!(target.forget_before(Instant::now()), 2, "{}", target.story());
        finish(begin(&target, 1));
        assert_eq!(target.fence_regressions().len(), 1);
        target.answer("e1", Answer { hang: true, ..Answer::default() });
        let hanging = begin(&target, 4);
        target.answer("e1", Answer::default());
        target.forget_before(Instant::now());
        finish(begin(&target, 4));
        assert_eq!(target.overlaps().len(), 1, "{}", target.story());
        drop(hanging);
    }

    #[test]
    fn a_door_that_is_shut_refuses_and_opens_again_at_the_same_address() {
        let target = Target::start();
        let door = target.open("127.0.7.1:0");
        let address = door.address();
        drop(TcpStream::connect(address).unwrap());
        drop(door);
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let again = target.open(address);
        drop(TcpStream::connect(again.address()).unwrap());
    }
}
