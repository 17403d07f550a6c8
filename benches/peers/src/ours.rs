//! Leasehold, through the library's store.

use std::io;
use std::time::Duration;

use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;

use crate::{LOCKS, Peer, TTL, timed};
use testkit::bench::holder::{Holder, endpoints};

/// The first half of its leases comes and goes, the second stays.
pub(crate) struct Leasehold(Holder);

impl Leasehold {
    pub(crate) fn new(url: &str) -> io::Result<Self> {
        let store = RedisStore::new(url, url, Keys::new("poll", "session:"));
        let n = u32::try_from(2 * LOCKS).map_err(io::Error::other)?;
        let mut holder = Holder::new(store.map_err(io::Error::other)?, TTL, endpoints(0..n)?)?;
        let granted = holder.acquire(LOCKS..2 * LOCKS)?;
        holder.granted(LOCKS..2 * LOCKS, &granted);
        Ok(Self(holder))
    }
}

impl Peer for Leasehold {
    fn name(&self) -> &'static str {
        "ours"
    }

    fn pairs(&mut self, at_once: usize) -> io::Result<Option<Duration>> {
        timed(|| {
            for from in (0..LOCKS).step_by(at_once) {
                let these = from..from + at_once;
                let granted = self.0.acquire(these.clone())?;
                self.0.granted(these.clone(), &granted);
                self.0.release(these)?;
            }
            Ok(())
        })
    }

    fn renewals(&mut self, at_once: usize) -> io::Result<Option<Duration>> {
        timed(|| {
            let mut batches = (LOCKS..2 * LOCKS).step_by(at_once);
            batches.try_for_each(|from| self.0.renew(from..from + at_once, true))
        })
    }
}
