//! Did a poll fail because this process lacked something? Then it says nothing about the endpoint and is no result.
//!
//! Two mechanisms. `Descriptors` keeps polls from taking the last descriptors, so that a name lookup, whose errors
//! do not say that it had none, and a new connection to Redis always find some. `of` recognises what the kernel
//! refuses all the same: by the number of the error, never by its words, because an endpoint can write words.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};

use crate::net::wait::plain;

/// Most descriptors that one HTTP or TCP poll has open at a time: files and sockets of a name lookup, then one socket. The
/// same for all, so that no poll needs more than another one leaves.
pub(crate) const NETWORK_POLL: u64 = 4;
/// The same for a command: four pipes at its start (one of them the standard library's), three ends and a pipe later.
pub(crate) const COMMAND_POLL: u64 = 8;
/// Descriptors kept for the rest of the process: connections to Redis, the log, the metrics file, name lookups that outlive their
/// poll. Half of all where that is less.
pub(crate) const KEPT: u64 = 64;

/// Descriptors of running polls. The limit is the process's, and so is this.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The right to open some descriptors, until it is dropped.
#[derive(Debug)]
pub(crate) struct Descriptors(u64);

impl Descriptors {
    /// Sets `n` aside; or says that there are none left, in a sentence that stays the same from poll to poll.
    pub(crate) fn take(n: u64) -> Result<Self, String> {
        let limit = limit();
        let most = limit - KEPT.min(limit / 2);
        let add = |taken: u64| taken.checked_add(n).filter(|it| *it <= most);
        let taken = TAKEN.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        let too_few = |_| {
            format!(
                "the limit of {limit} open files leaves none for another poll: raise it \
                 (LimitNOFILE= in the unit, or ulimit -n), or lower --workers"
            )
        };
        taken.map(|_| Self(n)).map_err(too_few)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::SeqCst);
    }
}

/// How many descriptors this process may have open, as of now: another process can change it.
fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |it| it.0)
}

/// What this process or this host has run out of, if that is why.
pub(crate) fn of(error: &io::Error) -> Option<String> {
    use Errno::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
    let is_ours = matches!(errno(error)?, EMFILE | ENFILE | ENOBUFS | ENOMEM);
    is_ours.then(|| plain(error))
}

/// The same for a process or a thread that could not be started.
pub(crate) fn of_spawn(error: &io::Error) -> Option<String> {
    match errno(error)? {
        Errno::EAGAIN => Some("no more processes or threads may be started".into()),
        _ => of(error),
    }
}

/// The same for a connect to `address`.
pub(crate) fn of_connect(error: &io::Error, address: SocketAddr) -> Option<String> {
    match errno(error)? {
        // Also what the kernel says where no address of this host leads there: that stays so, and is a result.
        Errno::EADDRNOTAVAIL if has_source(address) => Some("no local port is free".into()),
        Errno::EAGAIN => Some("the kernel has no room for another connection".into()),
        _ => of(error),
    }
}

/// Whether this host has an address from which `address` can be reached. Connecting a UDP socket sends nothing.
fn has_source(address: SocketAddr) -> bool {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    may_have_source(UdpSocket::bind(any), address)
}

/// A process that cannot even open the socket to find out lacks something, whatever else it lacks.
fn may_have_source(bound: io::Result<UdpSocket>, address: SocketAddr) -> bool {
    match bound {
        Ok(socket) => socket.connect(address).is_ok(),
        Err(error) => of(&error).is_some(),
    }
}

/// For a lookup that failed, and whose error does not tell: whether a descriptor can be had now.
pub(crate) fn of_lookup(error: &io::Error) -> Option<String> {
    of(error).or_else(|| of(&io::pipe().err()?))
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno as i32)
    }

    #[test]
    fn a_shortage_is_told_by_the_number_of_the_error() {
        let here: SocketAddr = ([127, 0, 0, 1], 9).into();
        for ours in [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM] {
            assert_eq!(of(&failed(ours)).as_deref(), Some(ours.desc()));
            assert!(of_spawn(&failed(ours)).is_some() && of_lookup(&failed(ours)).is_some());
            assert!(of_connect(&failed(ours), here).is_some());
        }
        for theirs in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ETIMEDOUT, Errno::ENOENT] {
            assert_eq!(of(&failed(theirs)), None);
            assert_eq!(of_spawn(&failed(theirs)), None);
            assert_eq!(of_lookup(&failed(theirs)), None);
            assert_eq!(of_connect(&failed(theirs), here), None);
        }
        assert_eq!(of(&io::Error::other("Too many open files (os error 24)")), None);
        assert!(of_spawn(&failed(Errno::EAGAIN)).is_some());
        assert_eq!(of(&failed(Errno::EAGAIN)), None, "of a read it only means: not yet");
    }

    /// A route from this host to there makes it a matter of ports; without one it is how things are.
    #[test]
    fn an_address_that_is_not_available_is_a_shortage_only_of_ports() {
        let here: SocketAddr = ([127, 0, 0, 1], 9).into();
        let error = failed(Errno::EADDRNOTAVAIL);
        assert_eq!(of_connect(&error, here).as_deref(), Some("no local port is free"));
        // Nobody has a route to the addresses that are set aside for being nobody's.
        let nowhere: SocketAddr = "[100::1%0]:9".parse().unwrap_or(([240, 0, 0, 1], 9).into());
        if !has_source(nowhere) {
            assert_eq!(of_connect(&error, nowhere), None);
        }
    }

    /// Without descriptors nobody can find out, and that is no fault of the endpoint.
    #[test]
    fn a_process_that_cannot_look_for_a_source_lacks_something() {
        let here: SocketAddr = ([127, 0, 0, 1], 9).into();
        assert!(may_have_source(Err(failed(Errno::EMFILE)), here));
        assert!(!may_have_source(Err(failed(Errno::EAFNOSUPPORT)), here), "no such protocol here");
        assert!(may_have_source(UdpSocket::bind("127.0.0.1:0"), here));
    }

    #[test]
    fn what_is_set_aside_comes_back_and_the_rest_of_the_process_keeps_some() {
        let most = limit() - KEPT.min(limit() / 2);
        let refused = Descriptors::take(most + 1).unwrap_err();
        assert!(refused.contains("open files") && refused.contains("LimitNOFILE="), "{refused}");
        let before = TAKEN.load(Ordering::SeqCst);
        drop(Descriptors::take(3).unwrap());
        // Other tests poll meanwhile, but not that often.
        assert!(TAKEN.load(Ordering::SeqCst) < before + 1_000);
    }
}
