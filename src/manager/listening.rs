//! Has another instance freed a lease that threads of this process wait for? The thread `watch` of a manager.
//!
//! It starts when a thread waits for the first time, so a program that never waits has neither the thread nor its
//! connection. A message is a hint: what it misses is found by asking again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::event::Event;
use crate::lease::watch::{Nudge, Watch};
use crate::manager::exchange::Exchange;
use crate::store::{PeerMessage, Push};
use crate::thread::{StopSource, Thread, stop_with_wire};

/// The subscription of a manager.
#[derive(Default)]
pub(super) struct Listening {
    thread: Mutex<Option<(StopSource, Thread)>>,
    hears: AtomicBool,
}

impl Listening {
    /// Whether messages of other instances arrive.
    pub(super) fn hears(&self) -> bool {
        self.hears.load(Ordering::Acquire)
    }

    /// Starts the thread unless it runs. Where it cannot be started the manager asks more often instead, and tries again.
    pub(super) fn ensure(&self, exchange: &Arc<Exchange>) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            *thread = start(exchange).ok();
        }
    }

    /// Ends the thread, and waits for it.
    pub(super) fn end(&self) {
        drop(self.thread.lock().take()); // the source, then the thread
    }
}

fn start(exchange: &Arc<Exchange>) -> io::Result<(StopSource, Thread)> {
    let (source, when, wire) = stop_with_wire()?;
    let table = &exchange.table;
    let (me, timeout) = (table.instance().clone(), table.timings().store_timeout);
    let told = Arc::downgrade(exchange);
    let nudge = move |nudge| told.upgrade().iter().for_each(|it| it.heard(&nudge));
    let watch = Watch::new(Arc::clone(&exchange.store), me, timeout, nudge);
    let mut watch = watch.interrupted_by(wire);
    let thread = exchange.fail_stop.steps("watch", when, move || watch.step())?;
    Ok((source, thread))
}

impl Exchange {
    fn heard(&self, nudge: &Nudge) {
        match nudge {
            Nudge::Listening { messages, refused, .. } => {
                self.listening.hears.store(*messages, Ordering::Release);
                if let Some(reason) = refused {
                    self.reporter.report(&Event::StoreUnheard { reason });
                }
                // What was said before is lost.
                self.turns.ask_again_all();
            }
            Nudge::Push(Push::Message(message)) => self.heard_message(message),
            Nudge::Push(Push::Everything) => self.turns.ask_again_all(),
            Nudge::Push(Push::Changed(_)) | Nudge::PollEnded => (),
        }
    }

    fn heard_message(&self, message: &PeerMessage) {
        let me = self.table.instance();
        // A lease that was released for an heir is left to it (R8). The threads of this process know what it released.
        let is_for_all = message.heir.as_ref().is_none_or(|it| it == me);
        if is_for_all && message.from != *me {
            let freed = message.freed.iter().chain(&message.dropped);
            self.turns.ask_again(freed);
        }
    }
}
