//! Which listeners learn of an election event, in which order, and on which thread?
//!
//! The thread that changes the state of a role posts the event under the same lock, so the order of events is the
//! order of changes. Delivery comes after: to a thread of the listener's own, whose queue has no bound
//! because nothing may be missed and the elector must not wait, or inline. A new listener takes its place in the same
//! queue: it is told the state of that moment, then everything that was posted after it, and nothing from before.

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

use crate::clock::Clock;
use crate::clock::scheduler::{Letter, Mailbox, Scheduler};
use crate::election::ElectionEvent;

/// How long a stop waits for listeners to have heard of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) type Tell = Box<dyn FnMut(&ElectionEvent) + Send>;

/// A listener that several elections may have, each on a thread of its own: one of them tells it something at a time.
#[derive(Clone)]
pub(crate) struct SharedListener(Arc<Mutex<Tell>>);

impl SharedListener {
    pub(crate) fn new(listener: impl FnMut(&ElectionEvent) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(listener))))
    }

    pub(crate) fn tell(&self, event: &ElectionEvent) {
        (self.0.lock())(event);
    }
}

impl std::fmt::Debug for SharedListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedListener")
    }
}

struct Slot {
    tell: Mutex<Tell>,
    /// Set when it is taken out: what waits in its queue is not told either.
    is_out: Arc<AtomicBool>,
}

/// Events that wait for delivery.
enum Item {
    /// To everybody.
    Event(ElectionEvent),
    /// To a new listener, which hears everything from here on.
    Register(Arc<Slot>, Vec<ElectionEvent>),
}

/// The listeners of one election.
pub(crate) struct Listeners {
    slots: Mutex<Vec<Arc<Slot>>>,
    queue: Mutex<VecDeque<Item>>,
    /// Held by the thread that delivers. Other threads leave their events to it: that keeps the order, and a listener
    /// that causes an event does not wait for itself.
    delivering: Mutex<()>,
    threads: Mutex<Vec<ThreadId>>,
    /// Every listener's thread holds the first end; when all are gone the second one sees it.
    here: Mutex<Option<Sender<Infallible>>>,
    gone: Receiver<Infallible>,
    scheduler: Option<Arc<dyn Scheduler>>,
}

/// A listener's place. Dropping this changes nothing; [`Registration::unregister`] takes the listener out.
#[derive(Debug)]
#[must_use = "only its `unregister` takes the listener out; bind it to `_stays` to keep the listener for good"]
pub struct Registration {
    listeners: Weak<Listeners>,
    is_out: Arc<AtomicBool>,
}

impl Registration {
    /// Tells it nothing more. A call that is under way may still end.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = leasehold::LeaderElection::builder("cleanup")?.start()?;
    /// let registration = election.listen(|event| println!("{event:?}"))?;
    /// registration.unregister();
    /// # Ok(()) }
    /// ```
    pub fn unregister(self) {
        self.is_out.store(true, Ordering::Release);
        if let Some(listeners) = self.listeners.upgrade() {
            listeners.slots.lock().retain(|it| !Arc::ptr_eq(&it.is_out, &self.is_out));
        }
    }
}

/// The way to a listener that has a thread of its own. The thread ends when the listener is unregistered, or when no election
/// and no [`Outlet`] can tell it anything any more.
#[derive(Clone)]
pub(crate) struct Outlet {
    events: Sender<(ElectionEvent, Letter)>,
    mailbox: Mailbox,
    is_out: Arc<AtomicBool>,
}

impl Outlet {
    /// Starts the thread, which holds `here` until it ends.
    pub(crate) fn start(
        mut tell: Tell,
        here: Option<Sender<Infallible>>,
        mailbox: Mailbox,
    ) -> io::Result<(Self, ThreadId)> {
        let (events, heard) = unbounded::<(ElectionEvent, Letter)>();
        let is_out = Arc::<AtomicBool>::default();
        let unregistered = Arc::clone(&is_out);
        let body = move || {
            let _here = here;
            for (event, letter) in heard {
                if unregistered.load(Ordering::Acquire) {
                    return;
                }
                letter.hear(|| call(&mut tell, &event));
            }
        };
        let thread = std::thread::Builder::new().name("listener".into()).spawn(body)?;
        Ok((Self { events, mailbox, is_out }, thread.thread().id()))
    }

    /// Takes the listener out of every election.
    pub(crate) fn registration(&self) -> Registration {
        Registration { listeners: Weak::new(), is_out: Arc::clone(&self.is_out) }
    }

    pub(crate) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Acquire)
    }
}

impl Listeners {
    pub(crate) fn new(clock: &dyn Clock) -> Arc<Self> {
        let (here, gone) = bounded(0);
        Arc::new(Self {
            slots: Mutex::default(),
            queue: Mutex::default(),
            delivering: Mutex::default(),
            threads: Mutex::default(),
            here: Mutex::new(Some(here)),
            gone,
            scheduler: clock.scheduler().cloned(),
        })
    }

    /// Calls `tell` on the thread that causes an event, with `present` first. Call it as [`Self::post`].
    pub(crate) fn add_inline(
        self: &Arc<Self>,
        tell: Tell,
        present: Vec<ElectionEvent>,
    ) -> Registration {
        self.insert(tell, Arc::default(), present)
    }

    fn insert(
        self: &Arc<Self>,
        tell: Tell,
        is_out: Arc<AtomicBool>,
        present: Vec<ElectionEvent>,
    ) -> Registration {
        let registration =
            Registration { listeners: Arc::downgrade(self), is_out: Arc::clone(&is_out) };
        let slot = Arc::new(Slot { tell: Mutex::new(tell), is_out });
        self.queue.lock().push_back(Item::Register(slot, present));
        registration
    }

    /// The same on a thread of its own.
    pub(crate) fn add(
        self: &Arc<Self>,
        tell: Tell,
        present: Vec<ElectionEvent>,
    ) -> io::Result<Registration> {
        let (outlet, thread) =
            Outlet::start(tell, self.here.lock().clone(), Mailbox::new(self.scheduler.as_ref()))?;
        self.threads.lock().push(thread);
        Ok(self.add_outlet(&outlet, present))
    }

    /// The same on the thread of `outlet`.
    pub(crate) fn add_outlet(
        self: &Arc<Self>,
        outlet: &Outlet,
        present: Vec<ElectionEvent>,
    ) -> Registration {
        let (events, mailbox) = (outlet.events.clone(), outlet.mailbox.clone());
        let pass_on = Box::new(move |event: &ElectionEvent| {
            drop(events.send((event.clone(), mailbox.post())));
        });
        self.insert(pass_on, Arc::clone(&outlet.is_out), present)
    }

    /// Puts an event in line. Call it under the lock under which the state changed.
    pub(crate) fn post(&self, event: ElectionEvent) {
        self.queue.lock().push_back(Item::Event(event));
    }

    /// Delivers all waiting events. The caller holds no lock: a listener may call back.
    pub(crate) fn deliver(&self) {
        while !self.queue.lock().is_empty() {
            let Some(_delivering) = self.delivering.try_lock() else { return };
            while let Some(item) = self.next() {
                match item {
                    Item::Event(event) => {
                        let slots = self.slots.lock().clone();
                        slots.iter().for_each(|it| it.tell(&event));
                    }
                    Item::Register(slot, present) => {
                        present.iter().for_each(|it| slot.tell(it));
                        let mut slots = self.slots.lock();
                        if !slot.is_out.load(Ordering::Acquire) {
                            slots.push(slot);
                        }
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<Item> {
        self.queue.lock().pop_front()
    }

    /// Waits until all listeners with a thread of this election's have heard everything, at most for the given time, and not for
    /// itself.
    pub(crate) fn close(&self, longest: Duration) {
        self.slots.lock().clear();
        self.here.lock().take();
        if !self.threads.lock().contains(&std::thread::current().id()) {
            let _ = self.gone.recv_timeout(longest);
        }
    }
}

impl Slot {
    fn tell(&self, event: &ElectionEvent) {
        if !self.is_out.load(Ordering::Acquire) {
            call(&mut self.tell.lock(), event);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;
    use crate::election::State;
    use crate::model::Role;

    fn change(from: State, to: State) -> ElectionEvent {
        ElectionEvent::StateChanged { role: Role::parse("r").unwrap(), from, to }
    }

    #[test]
    fn a_newcomer_hears_the_present_then_what_comes_and_nothing_of_what_was() {
        let listeners = Listeners::new(&BootClock);
        let early = change(State::Follower, State::Candidate);
        let (present, late) =
            (change(State::Follower, State::Leader), change(State::Leader, State::Follower));
        // Posted, and nobody has delivered it yet.
        listeners.post(early);
        let heard = Arc::<Mutex<Vec<ElectionEvent>>>::default();
        let tell = Arc::clone(&heard);
        let tell = Box::new(move |it: &ElectionEvent| tell.lock().push(it.clone()));
        let _stays = listeners.add_inline(tell, vec![present.clone()]);
        listeners.post(late.clone());
        listeners.deliver();
        assert_eq!(*heard.lock(), [present, late]);
    }

    #[test]
    fn a_newcomer_that_left_before_its_turn_hears_nothing() {
        let listeners = Listeners::new(&BootClock);
        let heard = Arc::<Mutex<usize>>::default();
        let count = Arc::clone(&heard);
        let tell = Box::new(move |_: &ElectionEvent| *count.lock() += 1);
        let present = vec![change(State::Follower, State::Candidate)];
        listeners.add_inline(tell, present).unregister();
        listeners.post(change(State::Candidate, State::Follower));
        listeners.deliver();
        assert_eq!((*heard.lock(), listeners.slots.lock().len()), (0, 0));
    }
}
