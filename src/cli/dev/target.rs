//! What does the fleet poll? A small HTTP server on a free port of loopback, with endpoints that do well, are slow and fail.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::model::EndpointId;
use crate::thread::{Stop, StopSource, Thread, stop};
use serde_json::json;

/// Endpoints that do well.
const WELL: usize = 9;
const INTERVAL_MS: u32 = 2_000;
/// How long `slow` takes.
const SLOW: Duration = Duration::from_millis(1_200);
/// `flaky` fails for the last third of each of these.
const CYCLE: Duration = Duration::from_secs(45);
/// A client has this long for everything.
const PATIENCE: Duration = Duration::from_secs(5);
const CLIENTS_MAX: usize = 64;
const REQUEST_MAX: u64 = 8 * 1_024;

/// Answers until dropped.
pub(super) struct Target {
    address: SocketAddr,
    stop: Option<StopSource>,
    accepting: Option<Thread>,
}

impl Target {
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let (source, until) = stop();
        let (began, clients) = (BootClock.now(), Arc::new(AtomicUsize::new(0)));
        let accepting = Thread::spawn("dev-target", move || {
            for stream in listener.incoming().flatten() {
                if until.is_over() {
                    return;
                }
                if clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
                    clients.fetch_sub(1, Ordering::AcqRel);
                    continue; // a stranger: the fleet has one poll of an endpoint at a time
                }
                let (until, served) = (until.clone(), Arc::clone(&clients));
                let client = std::thread::Builder::new().name("dev-client".into());
                let started = client.spawn(move || {
                    let _ = serve(stream, began, &until);
                    served.fetch_sub(1, Ordering::AcqRel);
                });
                if started.is_err() {
                    clients.fetch_sub(1, Ordering::AcqRel);
                }
            }
        })?;
        Ok(Self { address, stop: Some(source), accepting: Some(accepting) })
    }

    /// One session for each endpoint, as it is stored.
    pub(super) fn sessions(&self) -> Vec<(EndpointId, Vec<u8>)> {
        let well = (1..=WELL).map(|it| (format!("web-{it}"), "answers"));
        let others = [
            ("slow", "takes 1.2 s"),
            ("flaky", "fails for 15 s of 45 s"),
            ("down", "always fails"),
        ];
        let others = others.map(|it| (it.0.to_owned(), it.1));
        let session = |(id, name): (String, &str)| {
            let session = json!({
                "id": id, "name": name, "address": self.address.to_string(),
                "path": format!("/{id}"), "intervalMs": INTERVAL_MS,
            });
            Some((EndpointId::parse(&id).ok()?, session.to_string().into_bytes()))
        };
        well.chain(others).filter_map(session).collect()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop = None;
        // Wakes the thread that accepts.
        if TcpStream::connect(self.address).is_ok() {
            drop(self.accepting.take());
        }
    }
}

fn serve(mut stream: TcpStream, began: Moment, until: &Stop) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut input = stream.try_clone()?.take(REQUEST_MAX);
    let mut chunk = [0; 1_024];
    while !request.windows(4).any(|it| it == b"\r\n\r\n") {
        match input.read(&mut chunk)? {
            0 => return Ok(()),
            n => request.extend_from_slice(&chunk[..n]),
        }
    }
    let request = String::from_utf8_lossy(&request);
    let path = request.split_whitespace().nth(1).unwrap_or("/").trim_start_matches('/');
    let (status, body) = match path {
        "slow" if until.within(SLOW) => return Ok(()),
        "flaky" if is_down(BootClock.now().since(began)) => ("503 Service Unavailable", "tired"),
        "down" => ("503 Service Unavailable", "down for good"),
        _ => ("200 OK", "fine"),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes())
}

/// Whether `flaky` fails at this time of its life.
fn is_down(age: Duration) -> bool {
    age.as_millis() % CYCLE.as_millis() >= CYCLE.as_millis() * 2 / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &Target, path: &str) -> String {
        let mut stream = TcpStream::connect(target.address).unwrap();
        stream.write_all(format!("GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn endpoints_do_well_or_fail_as_their_sessions_say() {
        let target = Target::start().unwrap();
        assert_eq!(target.sessions().len(), WELL + 3);
        assert!(ask(&target, "web-1").starts_with("HTTP/1.1 200 OK"));
        assert!(ask(&target, "down").starts_with("HTTP/1.1 503"));
        assert!(ask(&target, "flaky").starts_with("HTTP/1.1 200 OK"));
        assert!(!is_down(Duration::from_secs(29)) && is_down(Duration::from_secs(31)));
        assert!(is_down(Duration::from_secs(44)) && !is_down(Duration::from_secs(46)));
    }

    #[test]
    fn a_target_ends_although_clients_hang() {
        let target = Target::start().unwrap();
        let idle: Vec<TcpStream> =
            (0..CLIENTS_MAX).map(|_| TcpStream::connect(target.address).unwrap()).collect();
        let begun = BootClock.now();
        drop(target);
        assert!(BootClock.now().since(begun) < PATIENCE, "waited for clients");
        drop(idle);
    }
}
