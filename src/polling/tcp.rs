//! Polls by connecting: does the endpoint accept a TCP connection?

use std::time::Duration;

use crate::clock::{BootClock, Clock};
use crate::lease::permit::{PollPermit, Revoked};
use crate::model::Sample;
use crate::polling::connect::{ConnectError, connect_any};
use crate::polling::targets::Targets;

/// One TCP connect to an endpoint. Called by `NetPoller`; not a `Poller` itself.
#[derive(Debug)]
pub struct TcpConnect {
    targets: Targets,
}

impl TcpConnect {
    /// Connects only to what `targets` allows.
    pub fn new(targets: Targets) -> Self {
        Self { targets }
    }

    /// Polls `host:port` once, lookup included within `timeout`.
    pub fn poll(
        &self,
        authority: &str,
        permit: &PollPermit,
        timeout: Duration,
    ) -> Result<Sample, Revoked> {
        let deadline = BootClock.now() + timeout;
        let found = self.targets.resolve(authority, timeout, permit.abort());
        let begun = BootClock.now();
        // The connect is what others can see of this poll: the permit is asked right before each.
        let may_connect = || permit.confirm().is_ok();
        let failure = match found {
            Err(error) => match error.shortage() {
                Some(why) => return Err(permit.defer(why)),
                None => Some(error.to_string()),
            },
            Ok(addresses) => match connect_any(&addresses, deadline, permit.abort(), may_connect) {
                Ok(_) => None,
                Err(ConnectError::Revoked) => return Err(Revoked),
                Err(ConnectError::Short(why)) => return Err(permit.defer(why)),
                Err(error) => Some(error.sentence(timeout)),
            },
        };
        permit.abort().disarm();
        if permit.abort().is_fired() {
            return Err(Revoked);
        }
        let duration = BootClock.now().since(begun);
        Ok(match failure {
            None => Sample { ok: true, status: None, error: None, body: Vec::new(), duration },
            Some(error) => Sample::failed(error, duration),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{SocketAddr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::lease::testing::permit_for_tests;
    use crate::net::abort::Abort;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A port of this machine that swallows SYNs: its backlog is full. The streams keep it so.
    fn silent() -> (Socket, Vec<Socket>, SocketAddr) {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let full = (0..8).map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            drop(socket.connect(&address.into()));
            socket
        });
        let full = full.collect();
        (listener, full, address)
    }

    fn poll(address: SocketAddr, permit: &PollPermit, limit: Duration) -> Result<Sample, Revoked> {
        TcpConnect::new(Targets::default()).poll(&address.to_string(), permit, limit)
    }

    #[test]
    fn an_accepted_connection_is_fine_and_a_refused_one_is_not() {
        let (permit, _revoke) = permit_for_tests("e1", "i", 1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(poll(address, &permit, LIMIT).unwrap().ok);
        drop(listener);
        let sample = poll(address, &permit, LIMIT).unwrap();
        let sentence = format!("cannot connect to {address}: Connection refused");
        assert_eq!((sample.ok, sample.error), (false, Some(sentence)));
    }

    #[test]
    fn a_port_that_does_not_answer_is_given_up_in_time() {
        let (permit, _revoke) = permit_for_tests("e1", "i", 1);
        let (_listener, _full, address) = silent();
        let begun = BootClock.now();
        let sample = poll(address, &permit, Duration::from_millis(200)).unwrap();
        let took = BootClock.now().since(begun);
        assert_eq!(sample.error.as_deref(), Some("no answer within 200ms"));
        assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(2), "{took:?}");
    }

    /// R3.
    #[test]
    fn a_lost_lease_ends_a_connect_at_once() {
        let (permit, revoke) = permit_for_tests("e1", "i", 1);
        let (_listener, _full, address) = silent();
        let (ended, end) = crossbeam_channel::bounded(1);
        std::thread::scope(|scope| {
            let permit = &permit;
            scope.spawn(move || ended.send(poll(address, permit, LIMIT)));
            let early = end.recv_timeout(Duration::from_millis(100));
            assert!(early.is_err(), "the connect did not wait: {early:?}");
            let begun = BootClock.now();
            revoke();
            assert_eq!(end.recv_timeout(LIMIT), Ok(Err(Revoked)));
            let took = BootClock.now().since(begun);
            assert!(took < Duration::from_millis(150), "{took:?}");
        });
    }

    /// R2.
    #[test]
    fn without_a_permit_nobody_sees_a_connection() {
        let (permit, revoke) = permit_for_tests("e1", "i", 1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        revoke();
        assert_eq!(poll(listener.local_addr().unwrap(), &permit, LIMIT), Err(Revoked));
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    /// R2: a loss right after the permit was confirmed must find something to stop.
    #[test]
    fn the_permit_is_confirmed_when_the_switch_is_armed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let abort = Abort::default();
        // Arming the switch drops what it was armed with before.
        let (before, armed) = crossbeam_channel::bounded::<()>(0);
        abort.arm(move || drop(before));
        let may_connect = || {
            assert_eq!(armed.try_recv(), Err(crossbeam_channel::TryRecvError::Disconnected));
            true
        };
        connect_any(&[address], BootClock.now() + LIMIT, &abort, may_connect).unwrap();
    }

    /// R2: a lease can end by the clock alone, before anybody fires the switch.
    #[test]
    fn a_right_that_ends_before_the_second_address_ends_the_poll() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let refuses = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let addresses = [refuses, listener.local_addr().unwrap()];
        let asked = std::cell::Cell::new(0);
        let may_connect = || {
            asked.set(asked.get() + 1);
            asked.get() == 1
        };
        let deadline = BootClock.now() + LIMIT;
        let end = connect_any(&addresses, deadline, &Abort::default(), may_connect);
        assert!(matches!(end, Err(ConnectError::Revoked)), "{end:?}");
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_denied_address_is_not_connected_to() {
        let (permit, _revoke) = permit_for_tests("e1", "i", 1);
        let sample = TcpConnect::new(Targets::default())
            .poll("[::ffff:169.254.169.254]:80", &permit, LIMIT)
            .unwrap();
        let error = sample.error.unwrap();
        assert!(error.contains("may not be polled") && error.contains("--deny-targets"), "{error}");
    }
}
