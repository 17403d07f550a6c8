//! Answers HTTP requests, for `/metrics` and for the page: one thread, a bounded number of clients, a deadline for each.
//!
//! No more of HTTP than GET and HEAD, and one request a connection. No client is waited for: the thread serves them all at
//! a time, and none of them has more than its deadline. When all places are taken, a newcomer gets the place of the client that
//! has gone longest without saying what it wants.

mod client;
mod message;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};

use crate::clock::{BootClock, Clock, Moment};
use crate::net::http_server::client::{Client, Next};
use crate::net::shortage::Descriptors;
use crate::net::wait::{is_ready, wait};
use crate::thread::{StopSource, Thread, stop_with_wire};

pub use crate::net::http_server::message::{Hosts, Request, Response, Status};

/// Clients at a time. Each needs a descriptor, and polls cannot have these.
pub const CLIENTS_MAX: usize = 64;
/// A client keeps its place for at least this long: it has connected before it can say anything.
const TO_SPEAK_UP: Duration = Duration::from_millis(50);
/// A port that is taken is tried again after this.
const RETRY: Duration = Duration::from_secs(5);
/// For clients that wait for their answer, and for a process that has no descriptor left.
const TICK: Duration = Duration::from_millis(20);

/// What is shown.
pub trait Site: Send + 'static {
    /// Whether there is such a path.
    fn knows(&self, path: &str) -> bool;

    /// The answer; `None` while it is on its way: the same is asked again a few milliseconds later. Never blocks.
    /// `waited` is how long the client has waited for it.
    fn answer(&mut self, request: &Request, waited: Duration) -> Option<Response>;
}

/// Is told of each attempt to listen: the error, or that there was none.
pub type Tell = Box<dyn FnMut(Option<&io::Error>) + Send>;

/// Where to listen.
pub enum Place {
    /// Here.
    Bound(TcpListener),
    /// Here as soon as nobody else does; each attempt is told.
    Awaited(SocketAddr, Tell),
}

/// A thread that answers requests, as long as this is kept.
pub struct HttpServer(Option<StopSource>, Option<Thread>);

impl HttpServer {
    /// Starts the thread `name`.
    pub fn start(name: &str, place: Place, hosts: Hosts, site: impl Site) -> io::Result<Self> {
        let (source, when, wire) = stop_with_wire()?;
        let (listener, awaited) = match place {
            Place::Bound(listener) => {
                listener.set_nonblocking(true)?;
                (Some(listener), None)
            }
            Place::Awaited(address, tell) => (None, Some((address, tell))),
        };
        // Where there are too few for that, it shares with the polls.
        let reserved = Descriptors::take(CLIENTS_MAX as u64).ok();
        let clients = Vec::with_capacity(CLIENTS_MAX);
        let mut state =
            Serving { listener, awaited, wire, hosts, site, clients, _reserved: reserved };
        let thread = Thread::steps(name, when, move || state.step())?;
        Ok(Self(Some(source), Some(thread)))
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.0.take());
        drop(self.1.take());
    }
}

struct Serving<S> {
    listener: Option<TcpListener>,
    awaited: Option<(SocketAddr, Tell)>,
    /// Readable when it is time to stop.
    wire: UnixStream,
    hosts: Hosts,
    site: S,
    clients: Vec<Client>,
    _reserved: Option<Descriptors>,
}

impl<S: Site> Serving<S> {
    fn step(&mut self) -> Duration {
        if self.listener.is_none() {
            let Some((address, tell)) = &mut self.awaited else { return RETRY };
            let bound = bind(*address);
            tell(bound.as_ref().err());
            self.listener = bound.ok();
        }
        let Some(listener) = &self.listener else { return RETRY };
        let is_full = self.clients.len() >= CLIENTS_MAX;
        let takes_more = !is_full || self.place_to_give(BootClock.now()).is_some();
        let mut fds = vec![PollFd::new(self.wire.as_fd(), PollFlags::POLLIN)];
        let wanted = if takes_more { PollFlags::POLLIN } else { PollFlags::empty() };
        fds.push(PollFd::new(listener.as_fd(), wanted));
        fds.extend(self.clients.iter().map(Client::awaited));
        let until = self.clients.iter().map(Client::due).min();
        let left = until.map_or(Duration::MAX, |it| it.since(BootClock.now()));
        let left = if is_full { left.min(TICK) } else { left };
        if wait(&mut fds, left).is_err() {
            return TICK; // no memory: asking again at once would never end
        }
        let ready: Vec<bool> = fds.iter().map(is_ready).collect();
        let now = BootClock.now();
        self.serve(ready.get(2..).unwrap_or_default(), now);
        match ready.get(1) {
            Some(true) => self.admit(now),
            _ => Duration::ZERO,
        }
    }

    fn serve(&mut self, ready: &[bool], now: Moment) {
        let Self { clients, hosts, site, .. } = self;
        let mut ready = ready.iter();
        clients.retain_mut(|client| {
            let is_ready = ready.next().copied().unwrap_or(false);
            let answer = |request: &Request, waited| {
                let refused = hosts.gate(request, site.knows(&request.path));
                refused.or_else(|| site.answer(request, waited))
            };
            client.step(is_ready, now, answer) == Next::Stays
        });
    }

    /// Takes in those that wait; how long to wait then.
    fn admit(&mut self, now: Moment) -> Duration {
        // Bounded: those that have been taken in are served in between.
        for _ in 0..CLIENTS_MAX {
            if self.clients.len() >= CLIENTS_MAX {
                let Some(at) = self.place_to_give(now) else { break };
                drop(self.clients.remove(at));
            }
            let Some(listener) = &self.listener else { break };
            match listener.accept() {
                Ok((stream, _)) => self.clients.extend(Client::of(stream, now)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => (),
                // Out of descriptors: the client that waits is still there, so asking again at once would never end.
                Err(_) => return TICK,
            }
        }
        Duration::ZERO
    }

    /// That of the client that has gone longest without saying what it wants, or without leaving after its answer.
    fn place_to_give(&self, now: Moment) -> Option<usize> {
        let has_had_time = |it: &Client| now.since(it.since()) >= TO_SPEAK_UP;
        let clients = self.clients.iter().enumerate();
        let idle = clients.filter(|it| it.1.is_idle() && has_had_time(it.1));
        idle.min_by_key(|it| it.1.since()).map(|it| it.0)
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// Answers `/large` with much, `/late` after a while, and everything else at once.
    struct Example;

    impl Site for Example {
        fn knows(&self, path: &str) -> bool {
            path != "/nothing"
        }

        fn answer(&mut self, request: &Request, waited: Duration) -> Option<Response> {
            match request.path.as_str() {
                "/late" if waited < Duration::from_millis(100) => None,
                "/large" => Some(Response::new(Status::OK, "text/plain", vec![b'x'; 80_000_000])),
                _ => Some(Response::text(Status::OK, "hello\n")),
            }
        }
    }

    fn server() -> (HttpServer, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let hosts = Hosts::of(address, "vm", &[], "--hosts");
        (HttpServer::start("http", Place::Bound(listener), hosts, Example).unwrap(), address)
    }

    fn sent(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(text.as_bytes());
        stream
    }

    fn answer(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    }

    const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

    #[test]
    fn a_request_is_answered_whole_whether_it_comes_in_pieces_or_late() {
        let (_server, address) = server();
        assert!(answer(sent(address, GET)).ends_with("\r\n\r\nhello\n"));
        assert!(answer(sent(address, &GET.replace("GET /", "GET /late"))).ends_with("hello\n"));
        let head = answer(sent(address, &GET.replace("GET", "HEAD")));
        assert!(head.contains("Content-Length: 6\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(answer(sent(address, &GET.replace("/ ", "/nothing "))).contains(" 404 "));
        let mut pieces = sent(address, "");
        for piece in GET.as_bytes().chunks(5) {
            pieces.write_all(piece).unwrap();
        }
        assert!(answer(pieces).ends_with("hello\n"));
        let large = answer(sent(address, &GET.replace("GET /", "GET /large")));
        assert!(large.len() > 80_000_000, "{}", large.len());
    }

    #[test]
    fn a_client_that_says_nothing_too_much_or_takes_nothing_is_given_up_on() {
        let (_server, address) = server();
        let began = BootClock.now();
        assert_eq!(answer(sent(address, "")), "");
        assert_eq!(answer(sent(address, "GET / HTTP/1.1\r\nHost: lo")), "");
        assert!(
            BootClock.now().since(began) < Duration::from_secs(10),
            "{:?}",
            BootClock.now().since(began)
        );
        assert_eq!(answer(sent(address, &"x".repeat(100_000))), "");
        // Takes nothing for longer than it may: what the kernel has no room for is not sent any more.
        let idle = sent(address, &GET.replace("GET /", "GET /large"));
        let others = BootClock.now();
        while BootClock.now().since(others) < Duration::from_secs(5) {
            assert!(answer(sent(address, GET)).ends_with("hello\n"));
        }
        assert!(answer(idle).len() < 80_000_000);
    }

    /// With a place for each until its time is over, the last would wait for five seconds.
    #[test]
    fn newcomers_get_the_places_of_those_who_say_nothing() {
        let (_server, address) = server();
        let silent: Vec<TcpStream> = (0..5 * CLIENTS_MAX).map(|_| sent(address, "GET")).collect();
        let began = BootClock.now();
        assert!(answer(sent(address, GET)).ends_with("hello\n"));
        assert!(
            BootClock.now().since(began) < Duration::from_secs(3),
            "{:?}",
            BootClock.now().since(began)
        );
        drop(silent);
    }

    /// At moments of the test's own, because on a busy machine silent clients run out of time before the newcomer comes.
    #[test]
    fn a_newcomer_gets_the_place_of_the_client_that_was_silent_longest() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let hosts = Hosts::of(address, "vm", &[], "--hosts");
        let (_end, wire) = UnixStream::pair().unwrap();
        let (listener, awaited, clients) = (Some(listener), None, Vec::new());
        let site = Example;
        let mut serving =
            Serving { listener, awaited, wire, hosts, site, clients, _reserved: None };
        let now = BootClock.now();
        let mut silent: Vec<TcpStream> = (0..CLIENTS_MAX).map(|_| sent(address, "")).collect();
        while serving.clients.len() < CLIENTS_MAX {
            serving.admit(now);
        }
        let _newcomer = sent(address, "");
        let mut has_lost_its_place = |at: Moment| {
            serving.admit(at);
            silent[0].set_read_timeout(Some(TICK)).unwrap();
            matches!(silent[0].read(&mut [0]), Ok(0))
        };
        assert!(!has_lost_its_place(now), "it had no time to speak up");
        assert!(has_lost_its_place(now + TO_SPEAK_UP), "the newcomer waits");
    }

    #[test]
    fn a_stop_waits_for_nobody() {
        let (server, address) = server();
        let silent: Vec<TcpStream> = (0..3).map(|_| sent(address, "GET")).collect();
        let began = BootClock.now();
        drop(server);
        assert!(
            BootClock.now().since(began) < Duration::from_millis(900),
            "{:?}",
            BootClock.now().since(began)
        );
        drop(silent);
    }
}
