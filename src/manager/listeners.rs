//! Who is told that a lease was lost, and on which thread?
//!
//! The table tells each loss once, on the thread that ends the lease. That thread keeps other leases alive, so it only puts
//! the loss into the queue of each listener. The queue has no bound, because nothing may be missed and nobody may wait. Each
//! listener has a thread of its own, which calls it.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::clock::scheduler::{Letter, Mailbox, Scheduler};
use crate::lease::table::{Loss, Lost};
use crate::model::{FenceToken, InstanceId, Tenure};

/// How long a stop waits for listeners to have heard of every loss.
const PATIENCE: Duration = Duration::from_secs(5);

/// A lease that ended although it was not given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostLease {
    tenure: Tenure,
    reason: LeaseLoss,
}

impl LostLease {
    /// The name it was acquired by.
    pub fn name(&self) -> &str {
        self.tenure.endpoint.as_str()
    }

    /// The fence under which it was held.
    pub fn fence(&self) -> FenceToken {
        self.tenure.fence
    }

    /// Why it ended.
    pub fn reason(&self) -> &LeaseLoss {
        &self.reason
    }
}

impl fmt::Display for LostLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was lost under fence {}: {}", self.name(), self.fence(), self.reason)
    }
}

struct Slot {
    losses: Sender<(LostLease, Letter)>,
    mailbox: Mailbox,
    /// Set when it is taken out: what waits in its queue is not told either.
    is_out: Arc<AtomicBool>,
}

/// The listeners of one manager.
pub(super) struct Listeners {
    slots: Mutex<Vec<Slot>>,
    threads: Mutex<Vec<ThreadId>>,
    /// The thread of each listener holds the first end; when all are gone the second one sees it.
    here: Mutex<Option<Sender<Infallible>>>,
    gone: Receiver<Infallible>,
    scheduler: Option<Arc<dyn Scheduler>>,
}

/// A listener's place. Dropping this changes nothing; [`LossListener::unregister`] takes the listener out.
#[derive(Debug)]
#[must_use = "it takes the listener out again; `let _ = …` keeps the listener until the manager stops"]
pub struct LossListener {
    listeners: Weak<Listeners>,
    is_out: Arc<AtomicBool>,
}

impl LossListener {
    /// Tells it nothing more. A call that is under way may still end.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = leasehold::LeaseManager::builder().start()?;
    /// let listener = manager.on_lost(|lost| eprintln!("{lost}"))?;
    /// listener.unregister();
    /// # Ok(()) }
    /// ```
    pub fn unregister(self) {
        self.is_out.store(true, Ordering::Release);
        if let Some(listeners) = self.listeners.upgrade() {
            listeners.slots.lock().retain(|it| !Arc::ptr_eq(&it.is_out, &self.is_out));
        }
    }
}

impl Listeners {
    pub(super) fn new(clock: &dyn Clock) -> Arc<Self> {
        let (here, gone) = bounded(0);
        let (slots, threads) = (Mutex::default(), Mutex::default());
        let (here, scheduler) = (Mutex::new(Some(here)), clock.scheduler().cloned());
        Arc::new(Self { slots, threads, here, gone, scheduler })
    }

    /// Calls `tell` for each loss from now on, in order, on a thread of its own.
    pub(super) fn add(
        self: &Arc<Self>,
        mut tell: impl FnMut(&LostLease) + Send + 'static,
    ) -> io::Result<LossListener> {
        let (losses, heard) = unbounded::<(LostLease, Letter)>();
        let mailbox = Mailbox::new(self.scheduler.as_ref());
        let here = self.here.lock().clone();
        let is_out = Arc::<AtomicBool>::default();
        let unregistered = Arc::clone(&is_out);
        // Ends when it is unregistered, or when the manager has stopped: then nobody sends any more.
        let body = move || {
            let _here = here;
            for (lost, letter) in heard {
                if unregistered.load(Ordering::Acquire) {
                    return;
                }
                // Its panic has been said on stderr and is its own affair: it hears of the next loss.
                letter.hear(|| drop(catch_unwind(AssertUnwindSafe(|| tell(&lost)))));
            }
        };
        let thread = std::thread::Builder::new().name("listener".into()).spawn(body)?;
        self.threads.lock().push(thread.thread().id());
        let listener =
            LossListener { listeners: Arc::downgrade(self), is_out: Arc::clone(&is_out) };
        self.slots.lock().push(Slot { losses, mailbox, is_out });
        Ok(listener)
    }

    /// Puts a loss in line. Never waits for a listener.
    pub(super) fn post(&self, lost: &Lost) {
        let slots = self.slots.lock();
        if slots.is_empty() {
            return;
        }
        let lost = LostLease { tenure: lost.tenure.clone(), reason: lost.loss.clone().into() };
        slots.iter().for_each(|it| drop(it.losses.send((lost.clone(), it.mailbox.post()))));
    }

    /// Waits until all have heard everything, but not for ever, and not for itself.
    pub(super) fn close(&self) {
        self.slots.lock().clear();
        self.here.lock().take();
        if !self.threads.lock().contains(&std::thread::current().id()) {
            let _ = self.gone.recv_timeout(PATIENCE);
        }
    }
}

/// Why a lease ended although it was not given back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseLoss {
    /// It could not be renewed in time, or the heartbeat of this instance could not.
    Expired,
    /// Another instance holds it.
    Taken(InstanceId),
    /// It is gone from Redis and cannot be reclaimed.
    Gone,
}

impl From<Loss> for LeaseLoss {
    fn from(loss: Loss) -> Self {
        match loss {
            // Only an instance that polls can be revoked (R15).
            Loss::Expired | Loss::Revoked => Self::Expired,
            Loss::Taken(owner) => Self::Taken(owner),
            Loss::Gone => Self::Gone,
        }
    }
}

impl fmt::Display for LeaseLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("it could not be renewed in time"),
            Self::Taken(owner) => write!(f, "{owner} holds it"),
            Self::Gone => f.write_str("it is gone from Redis"),
        }
    }
}
