//! Who is to be told, in which order, and on which thread.
//!
//! Whoever changes the state of a role posts the event under the same lock, so the order of events is the
//! order of changes. Delivery comes after: to a thread of the listener's own, whose queue has no bound
//! because nothing may be missed and the elector must not wait, or inline.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::Mutex;

use crate::election::ElectionEvent;

/// How long a stop waits for listeners to have heard of it.
const PATIENCE: Duration = Duration::from_secs(5);

type Tell = Box<dyn FnMut(&ElectionEvent) + Send>;

struct Slot {
    id: u64,
    tell: Mutex<Tell>,
    /// Set when it is taken out: what waits in its queue is not told either.
    is_out: Arc<AtomicBool>,
}

/// The listeners of one election.
pub(crate) struct Listeners {
    slots: Mutex<Vec<Arc<Slot>>>,
    next_id: Mutex<u64>,
    queue: Mutex<VecDeque<ElectionEvent>>,
    /// Held by whoever delivers. Others leave their events to it: that keeps the order, and a listener
    /// that causes an event does not wait for itself.
    delivering: Mutex<()>,
    threads: Mutex<Vec<ThreadId>>,
    /// Every listener's thread holds the first end; when all are gone the second one sees it.
    here: Mutex<Option<Sender<Infallible>>>,
    gone: Receiver<Infallible>,
}

/// A listener's place. Dropping this changes nothing; [`Registration::unregister`] takes the listener out.
#[derive(Debug)]
pub struct Registration {
    listeners: Weak<Listeners>,
    id: u64,
}

impl Registration {
    /// Tells it nothing more. A call that is under way may still end.
    pub fn unregister(self) {
        if let Some(listeners) = self.listeners.upgrade() {
            listeners.slots.lock().retain(|it| {
                let stays = it.id != self.id;
                if !stays {
                    it.is_out.store(true, Ordering::Release);
                }
                stays
            });
        }
    }
}

impl Listeners {
    pub(crate) fn new() -> Arc<Self> {
        let (here, gone) = bounded(0);
        Arc::new(Self {
            slots: Mutex::default(),
            next_id: Mutex::default(),
            queue: Mutex::default(),
            delivering: Mutex::default(),
            threads: Mutex::default(),
            here: Mutex::new(Some(here)),
            gone,
        })
    }

    /// Calls `tell` on the thread that causes an event.
    pub(crate) fn add_inline(self: &Arc<Self>, tell: Tell) -> Registration {
        self.insert(tell, Arc::default())
    }

    fn insert(self: &Arc<Self>, tell: Tell, is_out: Arc<AtomicBool>) -> Registration {
        let id = {
            let mut next = self.next_id.lock();
            *next += 1;
            *next
        };
        self.slots.lock().push(Arc::new(Slot { id, tell: Mutex::new(tell), is_out }));
        Registration { listeners: Arc::downgrade(self), id }
    }

    /// Calls `tell` on a thread of its own.
    pub(crate) fn add(self: &Arc<Self>, mut tell: Tell) -> io::Result<Registration> {
        let (events, heard) = unbounded::<ElectionEvent>();
        let here = self.here.lock().clone();
        let is_out = Arc::<AtomicBool>::default();
        let unregistered = Arc::clone(&is_out);
        // Ends when it is unregistered, or when the election has: then nobody sends any more.
        let body = move || {
            let _here = here;
            for event in heard {
                if unregistered.load(Ordering::Acquire) {
                    return;
                }
                call(&mut tell, &event);
            }
        };
        let thread = std::thread::Builder::new().name("listener".into()).spawn(body)?;
        self.threads.lock().push(thread.thread().id());
        let pass_on = Box::new(move |event: &ElectionEvent| drop(events.send(event.clone())));
        Ok(self.insert(pass_on, is_out))
    }

    /// Puts an event in line. Call it under the lock under which the state changed.
    pub(crate) fn post(&self, event: ElectionEvent) {
        self.queue.lock().push_back(event);
    }

    /// Tells everybody what is in line. Call it without any lock: a listener may ask anything.
    pub(crate) fn deliver(&self) {
        while !self.queue.lock().is_empty() {
            let Some(_delivering) = self.delivering.try_lock() else { return };
            while let Some(event) = self.next() {
                let slots = self.slots.lock().clone();
                for slot in slots {
                    if !slot.is_out.load(Ordering::Acquire) {
                        call(&mut slot.tell.lock(), &event);
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<ElectionEvent> {
        self.queue.lock().pop_front()
    }

    /// Waits until all have heard everything, but not for ever, and not for itself.
    pub(crate) fn close(&self) {
        self.slots.lock().clear();
        self.here.lock().take();
        if !self.threads.lock().contains(&std::thread::current().id()) {
            let _ = self.gone.recv_timeout(PATIENCE);
        }
    }
}

/// The panic of a listener has been said on stderr and is its own affair: it hears of the next event.
fn call(tell: &mut Tell, event: &ElectionEvent) {
    let _ = catch_unwind(AssertUnwindSafe(|| tell(event)));
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listeners({})", self.slots.lock().len())
    }
}
