//! Polls a URL with one request, over a connection of its own.
//!
//! First the connection is made ready: name lookup, connect, TLS. Then the permit is confirmed (R2), and only then the
//! first byte of the request is sent. There is no second connection: no redirect is followed and nothing is tried again.

mod answer;
mod request;
mod secrets;
mod tls;
mod url;
mod verdict;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::lease::permit::{PollPermit, Revoked};
use crate::model::{Check, Method, Sample, TlsCheck};
use crate::net::deadline_stream::Socket;
use crate::net::shortage;
use crate::net::wait::plain;
use crate::polling::connect::{ConnectError, connect_any};
use crate::polling::http::answer::{AnswerError, read_answer};
use crate::polling::http::request::request;
use crate::polling::http::secrets::{NoSecret, Secrets};
pub use crate::polling::http::tls::Trust;
use crate::polling::http::tls::{Tls, TlsStream, socket_of};
use crate::polling::http::url::Url;
use crate::polling::http::verdict::{unexpected_body, unexpected_status};
use crate::polling::targets::{ResolveError, Targets};

/// One request to a URL. Called by `NetPoller`; not a `Poller` itself.
#[derive(Debug)]
pub struct HttpPoll {
    targets: Targets,
    body_max: usize,
    tls: Tls,
    secrets: Secrets,
}

/// Why there is no sample of an answer.
enum Failure {
    Revoked,
    /// What this process lacked.
    Short(String),
    Error(String),
}

impl Failure {
    fn of_io(error: &io::Error, sentence: impl FnOnce() -> String) -> Self {
        shortage::of(error).map_or_else(|| Self::Error(sentence()), Self::Short)
    }
}

impl From<AnswerError> for Failure {
    fn from(error: AnswerError) -> Self {
        match &error {
            AnswerError::Io(it) => Self::of_io(it, || error.to_string()),
            _ => Self::Error(error.to_string()),
        }
    }
}

impl From<Revoked> for Failure {
    fn from(_: Revoked) -> Self {
        Self::Revoked
    }
}

impl HttpPoll {
    /// Polls only what `targets` allows, and keeps at most `body_max` bytes of an answer.
    pub fn new(targets: Targets, body_max: usize) -> Self {
        let (tls, secrets) = (Tls::new(Trust::default()), Secrets::default());
        Self { targets, body_max, tls, secrets }
    }

    /// Believes whom `trust` says, and reads secrets from `secrets_dir`.
    pub fn with_access(self, trust: Trust, secrets_dir: Option<PathBuf>) -> Self {
        Self { tls: Tls::new(trust), secrets: Secrets(secrets_dir), ..self }
    }

    /// Polls `url` once, as `check` says; everything from the lookup to the last byte falls within `timeout`.
    pub fn poll(
        &self,
        url: &str,
        check: &Check,
        permit: &PollPermit,
        timeout: Duration,
    ) -> Result<Sample, Revoked> {
        let mut begun = BootClock.now();
        let deadline = begun + timeout;
        let parsed = Url::parse(url).map_err(|it| Failure::Error(it.to_string()));
        let answer = parsed.and_then(|url| {
            let request = self.request(&url, check, permit)?;
            let mut connection = self.connection(&url, &check.tls, permit, timeout, deadline)?;
            // R3: a request that the network has lost is not delivered after the poll has ended.
            connection.discard_at_close(true)?;
            // R2: from here to the first byte nothing waits.
            permit.confirm()?;
            begun = BootClock.now();
            connection.write_all(&request).map_err(AnswerError::from)?;
            let has_body = check.method != Method::Head;
            let answer = read_answer(&mut connection, has_body, self.body_max)?;
            connection.discard_at_close(false)?;
            Ok(answer)
        });
        let answer = answer.and_then(|answer| {
            let unexpected = unexpected_status(check, answer.status);
            let error = match answer.cut.map(Failure::from) {
                _ if unexpected.is_some() => unexpected,
                Some(Failure::Error(_)) if BootClock.now() >= deadline => {
                    Some(format!("the answer did not end within {timeout:?}"))
                }
                Some(Failure::Error(cut)) => Some(cut),
                Some(failure) => return Err(failure),
                None => unexpected_body(check, &answer.body, self.body_max),
            };
            Ok((Some(i32::from(answer.status)), error, answer.body))
        });
        permit.abort().disarm();
        if permit.abort().is_fired() {
            return Err(Revoked);
        }
        let now = BootClock.now();
        let duration = now.since(begun);
        match answer {
            Ok((status, error, body)) => {
                Ok(Sample { ok: error.is_none(), status, error, body, duration })
            }
            Err(Failure::Revoked) => Err(Revoked),
            Err(Failure::Short(why)) => Err(permit.defer(why)),
            Err(Failure::Error(_)) if now >= deadline => {
                Ok(Sample::failed(format!("no answer within {timeout:?}"), duration))
            }
            Err(Failure::Error(error)) => Ok(Sample::failed(error, duration)),
        }
    }

    fn request(
        &self,
        url: &Url<'_>,
        check: &Check,
        permit: &PollPermit,
    ) -> Result<Vec<u8>, Failure> {
        request(url, check, permit, &self.secrets).map_err(|(header, file, why)| {
            let sentence = || why.sentence(&header.name, file);
            match &why {
                NoSecret::Unreadable(error) => Failure::of_io(error, sentence),
                _ => Failure::Error(sentence()),
            }
        })
    }

    /// Everything that takes long: lookup, connect, TLS.
    fn connection(
        &self,
        url: &Url<'_>,
        check: &TlsCheck,
        permit: &PollPermit,
        timeout: Duration,
        deadline: Moment,
    ) -> Result<Connection, Failure> {
        let place = format!("{}:{}", url.host, url.port);
        let abort = permit.abort();
        let unresolved = |it: ResolveError| {
            it.shortage().map_or_else(|| Failure::Error(it.to_string()), Failure::Short)
        };
        let found = self.targets.resolve(&place, timeout, abort).map_err(unresolved)?;
        let stream = match connect_any(&found, deadline, abort, || true) {
            Ok(stream) => stream,
            Err(ConnectError::Revoked) => return Err(Failure::Revoked),
            Err(ConnectError::Short(why)) => return Err(Failure::Short(why)),
            Err(error) => return Err(Failure::Error(error.sentence(timeout))),
        };
        let socket = Socket::new(stream, deadline);
        if !url.is_tls {
            return Ok(Connection::Plain(socket));
        }
        let no_tls =
            |it: io::Error| Failure::of_io(&it, || format!("no TLS with {place}: {}", plain(&it)));
        let shaken = self.tls.handshake(url.host, socket, check, permit);
        shaken.map(Connection::Tls).map_err(no_tls)
    }
}

enum Connection {
    Plain(Socket),
    Tls(TlsStream),
}

impl Connection {
    fn discard_at_close(&self, discards: bool) -> Result<(), AnswerError> {
        let socket = match self {
            Self::Plain(it) => it,
            Self::Tls(it) => socket_of(it),
        };
        Ok(socket.set_discards_at_close(discards)?)
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(it) => it.read(buffer),
            Self::Tls(it) => it.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(it) => it.write(buffer),
            Self::Tls(it) => it.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(it) => it.flush(),
            Self::Tls(it) => it.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

    use super::*;
    use crate::lease::permit::Standing;
    use crate::lease::testing::{permit_and_lease, permit_for_tests};
    use crate::model::USUAL_CHECK;

    const LIMIT: Duration = Duration::from_secs(10);
    const PACE: Duration = Duration::from_millis(20);

    /// Serves one connection with `serve`, and tells what was read from it.
    fn server(
        serve: impl FnOnce(&mut TcpStream) + Send + 'static,
    ) -> (SocketAddr, Receiver<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, sees) = unbounded();
        let thread = std::thread::Builder::new().name("server".into());
        let thread = thread.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            drop(listener);
            let request = read_request(&mut stream);
            if !request.is_empty() {
                serve(&mut stream);
            }
            drop(seen.send(request));
        });
        drop(thread.unwrap());
        (address, sees)
    }

    fn read_request(stream: &mut TcpStream) -> Vec<u8> {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|it| it > 0) {
            request.push(byte[0]);
        }
        request
    }

    fn answering(answer: &'static str) -> (SocketAddr, Receiver<Vec<u8>>) {
        server(move |stream| stream.write_all(answer.as_bytes()).unwrap())
    }

    /// Sends `piece` again and again, until the other side hangs up.
    fn endless(head: &'static str, piece: &'static str, pace: Duration) -> SocketAddr {
        let serve = move |stream: &mut TcpStream| {
            let (_tick, ticks): (Sender<()>, _) = bounded(0);
            stream.write_all(head.as_bytes()).unwrap();
            while stream.write_all(piece.as_bytes()).is_ok() {
                let _ = ticks.recv_timeout(pace);
            }
        };
        server(serve).0
    }

    fn poll(address: SocketAddr, permit: &PollPermit, limit: Duration) -> Result<Sample, Revoked> {
        let poller = HttpPoll::new(Targets::default(), 1_000);
        poller.poll(&format!("http://{address}/health?deep=1"), &USUAL_CHECK, permit, limit)
    }

    fn answer(answer: &'static str) -> Sample {
        let (permit, _revoke) = permit_for_tests("e1", "vm-1-17-abcdef01", 42);
        poll(answering(answer).0, &permit, LIMIT).unwrap()
    }

    #[test]
    fn a_poll_says_who_asks_under_which_grant() {
        let (permit, _revoke) = permit_for_tests("e1", "vm-1-17-abcdef01", 42);
        let (address, sees) = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        let sample = poll(address, &permit, LIMIT).unwrap();
        assert_eq!((sample.ok, sample.status, sample.error), (true, Some(200), None));
        assert_eq!(sample.body, b"hi");
        let request = String::from_utf8(sees.recv_timeout(LIMIT).unwrap()).unwrap();
        assert!(request.starts_with("GET /health?deep=1 HTTP/1.1\r\n"), "{request}");
        let request = request.to_lowercase();
        for line in [
            &format!("host: {address}"),
            "user-agent: leasehold/",
            "x-leasehold-instance: vm-1-17-abcdef01",
            "x-leasehold-fence: 42",
            "connection: close",
        ] {
            assert!(request.contains(line), "{line} is not in {request}");
        }
    }

    #[test]
    fn only_2xx_is_fine_and_a_redirect_is_not_followed() {
        let sample = answer("HTTP/1.1 503 Unavailable\r\nContent-Length: 4\r\n\r\nbusy");
        assert_eq!((sample.ok, sample.status), (false, Some(503)));
        assert_eq!((sample.error.as_deref(), &sample.body[..]), (Some("HTTP 503"), &b"busy"[..]));
        let sample = answer("HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!((sample.ok, sample.status), (true, Some(204)));
        let sample = answer(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        );
        assert_eq!((sample.status, sample.error.as_deref()), (Some(302), Some("HTTP 302")));
    }

    #[test]
    fn chunked_and_unmeasured_bodies_are_read_to_their_end() {
        let sample = answer(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        );
        assert_eq!((sample.ok, &sample.body[..]), (true, &b"abc"[..]));
        let sample = answer("HTTP/1.0 200 OK\r\n\r\nuntil the end");
        assert_eq!((sample.ok, &sample.body[..]), (true, &b"until the end"[..]));
    }

    #[test]
    fn an_answer_that_is_none_is_a_sentence() {
        for (text, word) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", "closed before"),
            ("HTTP/1.1 200 OK\r\nX: ", "closed before"),
            ("SSH-2.0-OpenSSH\r\n\r\n", "not a valid HTTP answer"),
        ] {
            let sample = answer(text);
            let error = sample.error.unwrap();
            assert!(!sample.ok && error.contains(word) && !error.contains("SSH"), "{error}");
        }
    }

    #[test]
    fn the_rest_of_a_long_body_is_not_read() {
        let (permit, _revoke) = permit_for_tests("e1", "i", 1);
        for head in
            ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"]
        {
            let sample = poll(endless(head, "0123456789", Duration::ZERO), &permit, LIMIT).unwrap();
            assert_eq!((sample.ok, sample.error, sample.body.len()), (true, None, 1_000));
        }
    }

    #[test]
    fn a_server_that_drips_is_given_up_in_time() {
        let (permit, _revoke) = permit_for_tests("e1", "i", 1);
        let limit = Duration::from_millis(300);
        for (head, piece, sentence) in [
            ("HTTP/1.1 200 OK\r\n\r\n", "x", "the answer did not end within 300ms"),
            ("HTTP/1.1 200 OK\r\n", "X-More: 1\r\n", "no answer within 300ms"),
            ("", "H", "no answer within 300ms"),
        ] {
            let begun = BootClock.now();
            let sample = poll(endless(head, piece, PACE), &permit, limit).unwrap();
            let took = BootClock.now().since(begun);
            assert!(took < Duration::from_secs(2), "{took:?}");
            if head.is_empty() {
                assert!(!sample.ok, "{sample:?}"); // as soon as it is clear that this is not HTTP
            } else {
                assert_eq!((sample.ok, sample.error.as_deref()), (false, Some(sentence)));
            }
        }
    }

    #[test]
    fn headers_without_end_are_given_up_at_their_limit() {
        let (permit, _revoke) = permit_for_tests("e1", "i", 1);
        let address = endless("HTTP/1.1 200 OK\r\n", "X-More: 0123456789\r\n", Duration::ZERO);
        let error = poll(address, &permit, LIMIT).unwrap().error.unwrap();
        assert!(error.contains("headers") || error.contains("not a valid HTTP answer"), "{error}");
    }

    #[test]
    fn nobody_there_and_not_allowed_are_sentences() {
        let (permit, _revoke) = permit_for_tests("e1", "i", 1);
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = poll(address, &permit, LIMIT).unwrap().error.unwrap();
        assert_eq!(error, format!("cannot connect to {address}: Connection refused"));
        let poller = HttpPoll::new(Targets::default(), 1_000);
        for url in
            ["http://169.254.169.254/latest", "http://[::ffff:a9fe:a9fe]/", "https://[fe80::1]/"]
        {
            let error = poller.poll(url, &USUAL_CHECK, &permit, LIMIT).unwrap().error.unwrap();
            assert!(error.contains("--allow-targets"), "{url}: {error}");
        }
        let error =
            poller.poll("http://no host/", &USUAL_CHECK, &permit, LIMIT).unwrap().error.unwrap();
        assert!(error.starts_with("not a valid URL"), "{error}");
    }

    /// R2.
    #[test]
    fn a_lease_in_doubt_after_the_connect_sends_no_byte() {
        let (permit, lease) = permit_and_lease("e1", "i", 1);
        let (address, sees) = answering("HTTP/1.1 200 OK\r\n\r\n");
        lease.state.lock().standing = Standing::Uncertain;
        assert_eq!(poll(address, &permit, LIMIT), Err(Revoked));
        assert_eq!(sees.recv_timeout(LIMIT), Ok(Vec::new()), "the server saw part of a request");
    }

    /// R3.
    #[test]
    fn a_lost_lease_ends_a_poll_at_once() {
        for head in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n\r\nfirst"] {
            let (permit, revoke) = permit_for_tests("e1", "i", 1);
            let (told, heard) = bounded(1);
            let (address, _sees) = server(move |stream| {
                stream.write_all(head.as_bytes()).unwrap();
                told.send(()).unwrap();
                drop(stream.read(&mut [0])); // until the other side hangs up
            });
            std::thread::scope(|scope| {
                let polling = scope.spawn(|| (poll(address, &permit, LIMIT), BootClock.now()));
                heard.recv_timeout(LIMIT).expect("the request did not arrive");
                let begun = BootClock.now();
                revoke();
                let (outcome, ended) = polling.join().unwrap();
                assert_eq!(outcome, Err(Revoked), "after {head:?}");
                let took = ended.since(begun);
                assert!(took < Duration::from_millis(150), "{took:?} after {head:?}");
            });
        }
    }

    /// R3. A plain end would let the kernel deliver a lost request after another instance has begun to poll.
    #[test]
    fn a_poll_that_is_aborted_takes_back_what_was_not_delivered() {
        for head in ["", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"] {
            let (permit, revoke) = permit_for_tests("e1", "i", 1);
            let (told, heard) = bounded(1);
            let (over, is_over) = bounded::<()>(1);
            let (wrote, written) = bounded(1);
            let (address, _sees) = server(move |stream| {
                stream.write_all(head.as_bytes()).unwrap();
                told.send(()).unwrap();
                drop(stream.read(&mut [0])); // until the other side hangs up
                is_over.recv_timeout(LIMIT).unwrap();
                wrote.send(stream.write_all(b"x").is_ok()).unwrap();
            });
            std::thread::scope(|scope| {
                let polling = scope.spawn(|| poll(address, &permit, LIMIT));
                heard.recv_timeout(LIMIT).expect("the request did not arrive");
                let is_answered = !head.is_empty();
                if !is_answered {
                    revoke();
                }
                assert_eq!(polling.join().unwrap().is_ok(), is_answered);
                over.send(()).unwrap();
                let ended_plainly = written.recv_timeout(LIMIT).unwrap();
                assert_eq!(ended_plainly, is_answered, "after {head:?}");
            });
        }
    }

    #[cfg(feature = "https")]
    #[test]
    fn a_handshake_that_fails_or_hangs_is_a_sentence() {
        let (permit, _revoke) = permit_for_tests("e1", "i", 1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let poller = HttpPoll::new(Targets::default(), 1_000);
        let url = format!("https://{address}/");
        let sample = poller.poll(&url, &USUAL_CHECK, &permit, Duration::from_millis(200)).unwrap();
        assert_eq!(sample.error.as_deref(), Some("no answer within 200ms"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap(); // the one that hung
                drop(stream.read(&mut [0; 1_024]));
                let (mut stream, _) = listener.accept().unwrap();
                drop(stream.read(&mut [0; 1_024]));
                drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
                drop(stream.read(&mut [0; 1_024]));
            });
            let error = poller.poll(&url, &USUAL_CHECK, &permit, LIMIT).unwrap().error.unwrap();
            assert!(error.starts_with(&format!("no TLS with {address}: ")), "{error}");
        });
    }
}
