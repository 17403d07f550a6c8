//! Is this lease still held? The guard of one tenure: asks memory and the clock, and gives the lease back at its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;
use crate::manager::exchange::Exchange;
use crate::manager::hold::Hold;
use crate::manager::listeners::LeaseLoss;
use crate::manager::outcome::{LeaseError, Released};
use crate::model::FenceToken;

/// A lease that this instance holds. Dropping it gives the lease back.
///
/// A guard is of one tenure. Once the lease is lost or given back, [`Lease::holds`] stays false, even if the same manager
/// acquires the name again: that is another tenure with a higher fence and guards of its own. Dropping an old guard never
/// ends a newer tenure.
///
/// Threads of one process that acquire one name share the tenure: each has a guard with the same fence, and the last guard
/// gives the lease back. So a lease keeps other *instances* out. To keep other threads of the process out, too, use a
/// `Mutex` beside it.
///
/// The drop of the last guard waits for Redis to confirm the release, at most `store_timeout` (2 s by default). Without an
/// answer the lease is no longer renewed, and other instances get it when its TTL is over. [`Lease::release`] does the same
/// and tells the outcome. A guard that outlives its manager holds nothing, and its drop returns at once.
#[must_use = "a guard that is dropped gives the lease back"]
pub struct Lease {
    exchange: Arc<Exchange>,
    hold: Arc<Hold>,
    is_over: bool,
}

impl Lease {
    pub(super) fn new(exchange: &Arc<Exchange>, hold: Arc<Hold>) -> Self {
        Self { exchange: Arc::clone(exchange), hold, is_over: false }
    }

    /// Without the guard, for a release of many; the guard, if it is of another manager. The caller parts from it.
    pub(super) fn into_hold(mut self, of: &Arc<Exchange>) -> Result<Arc<Hold>, Self> {
        if !Arc::ptr_eq(&self.exchange, of) {
            return Err(self);
        }
        self.is_over = true;
        Ok(Arc::clone(&self.hold))
    }

    /// The name it was acquired by.
    pub fn name(&self) -> &str {
        self.hold.tenure.endpoint.as_str()
    }

    /// The fencing token of this tenure. Send it along with every effect, so that a receiver can refuse an older one.
    pub fn fence(&self) -> FenceToken {
        self.hold.tenure.fence
    }

    /// Whether something may be done under it now. Ask right before each effect. Never true after the lease could have
    /// moved; false also while a renewal has gone unanswered, until one is answered. Asks memory and the clock, not Redis.
    pub fn holds(&self) -> bool {
        self.exchange.table.is_usable(&self.hold.tenure)
    }

    /// How long it holds unless it is renewed, which happens by itself. Zero unless [`Self::holds`].
    pub fn remaining(&self) -> Duration {
        let left = self.exchange.table.time_left(&self.hold.tenure);
        left.filter(|_| self.holds()).unwrap_or_default()
    }

    /// Waits until it is lost or given back, at most `timeout`; true if it is. A lease that is merely uncertain is not lost.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// # let lease = manager.try_acquire("report")?.held().unwrap();
    /// use std::time::Duration;
    ///
    /// while !lease.wait_lost(Duration::from_secs(1)) {
    ///     println!("held for {:?}", lease.remaining());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn wait_lost(&self, timeout: Duration) -> bool {
        self.hold.wait_for_end(&self.exchange.table, timeout)
    }

    /// For another thread that is to notice the end of this tenure. Keeps nothing held.
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch { exchange: Arc::clone(&self.exchange), hold: Arc::clone(&self.hold) }
    }

    /// Gives it back, and tells what became of it. After an error the lease is not held here any more either; Redis may keep
    /// it from others until its TTL is over.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// # let lease = manager.try_acquire("report")?.held().unwrap();
    /// use leasehold::Released;
    ///
    /// if lease.release()? == Released::GivenBack {
    ///     println!("free for others");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn release(mut self) -> Result<Released, LeaseError> {
        self.is_over = true;
        Ok(self.exchange.part(&self.hold)?)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Err(error) = self.exchange.part(&self.hold) {
            let endpoint = &self.hold.tenure.endpoint;
            self.exchange.reporter.report(&Event::LeaseFailed { endpoint, error: &error });
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, fence, left) = (self.name(), self.fence(), self.remaining());
        write!(f, "Lease({name}, fence {fence}, holds for {left:?})")
    }
}

/// Sees the end of a tenure without holding it. From [`Lease::watch`].
#[derive(Clone)]
pub struct LeaseWatch {
    exchange: Arc<Exchange>,
    hold: Arc<Hold>,
}

impl LeaseWatch {
    /// As [`Lease::name`].
    pub fn name(&self) -> &str {
        self.hold.tenure.endpoint.as_str()
    }

    /// As [`Lease::fence`].
    pub fn fence(&self) -> FenceToken {
        self.hold.tenure.fence
    }

    /// As [`Lease::holds`].
    pub fn holds(&self) -> bool {
        self.exchange.table.is_usable(&self.hold.tenure)
    }

    /// As [`Lease::wait_lost`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// # let lease = manager.try_acquire("report")?.held().unwrap();
    /// use std::time::Duration;
    ///
    /// let watch = lease.watch();
    /// std::thread::spawn(move || {
    ///     if watch.wait_lost(Duration::from_secs(60)) {
    ///         eprintln!("{:?}", watch.loss());
    ///     }
    /// });
    /// # Ok(()) }
    /// ```
    pub fn wait_lost(&self, timeout: Duration) -> bool {
        self.hold.wait_for_end(&self.exchange.table, timeout)
    }

    /// Why it was lost; `None` while it lasts, and if it was given back.
    pub fn loss(&self) -> Option<LeaseLoss> {
        self.hold.loss()
    }
}

impl fmt::Debug for LeaseWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseWatch({}, fence {})", self.name(), self.fence())
    }
}
