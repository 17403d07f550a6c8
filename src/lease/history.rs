//! What happened to a lease, and when? Appends grants, losses and releases to the stream `poll:history`, for operators.
//!
//! Best-effort and asynchronous: no thread that keeps a lease waits for this one. A full queue drops notes and counts them.
//! A store that refuses costs one line in the log.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select};

use crate::clock::Moment;
use crate::event::Event;
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::lease::trouble::Trouble;
use crate::model::{EndpointId, FenceToken, InstanceId, Tenure};
use crate::store::{BATCH_MAX, Fault, Note, Store, StoreError};
use crate::thread::Stop;

/// Capacity of the queue. The store keeps no more entries than this.
const NOTES_MAX: usize = 10_000;
/// The thread writes for at most one part in this many of its time, because a mass of grants comes first.
const WRITING_SHARE: u32 = 10;
/// Longest pause between two writes, and the pause after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The sending end of the queue of notes.
#[derive(Clone)]
pub struct History {
    notes: Sender<(Moment, Note)>,
    dropped: Arc<AtomicU64>,
    table: Arc<OwnershipTable>,
}

impl History {
    /// Queues a note of `event` if it is about a lease that begins or ends.
    pub fn note(&self, event: &Event<'_>) {
        if let Some(note) = note_of(event, self.table.instance()) {
            self.put(note);
        }
    }

    /// Queues a note that this instance has `started` or `stopped`. An instance that held nothing leaves no other trace.
    pub fn note_instance(&self, event: &'static str) {
        self.put(Note::of_instance(event, self.table.instance()));
    }

    fn put(&self, note: Note) {
        // A send fails only when the receiver has ended, during shutdown. Ignored.
        if let Err(TrySendError::Full(_)) = self.notes.try_send((self.table.now(), note)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "History({} queued)", self.notes.len())
    }
}

fn note_of(event: &Event<'_>, me: &InstanceId) -> Option<Note> {
    let note = |event, endpoint: &EndpointId, fence: &FenceToken, reason: &'static str| Note {
        tenure: Some(Tenure::new(endpoint.clone(), *fence)),
        reason,
        ..Note::of_instance(event, me)
    };
    Some(match event {
        Event::LeaseAcquired { endpoint, fence, reason } => {
            note("acquired", endpoint, fence, reason)
        }
        Event::LeaseReleased { tenure: Tenure { endpoint, fence }, reason, heir } => {
            Note { heir: heir.cloned(), ..note("released", endpoint, fence, reason) }
        }
        Event::LeaseLost { tenure: Tenure { endpoint, fence }, reason, owner } => {
            Note { owner: owner.cloned(), ..note("lost", endpoint, fence, reason) }
        }
        Event::LeaseReclaimed { endpoint, fence } => note("reclaimed", endpoint, fence, ""),
        Event::InstanceRevoked { other, reason } => {
            Note { reason, owner: Some(me.clone()), ..Note::of_instance("revoked", other) }
        }
        _ => return None,
    })
}

/// The thread `history`: wakes on a note.
pub struct Historian {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    notes: Receiver<(Moment, Note)>,
    dropped: Arc<AtomicU64>,
    pending: Vec<(Moment, Note)>,
    trouble: Trouble,
}

impl Historian {
    /// Both ends of the queue, for the instance of `table`.
    pub fn new(store: &Arc<dyn Store>, table: &Arc<OwnershipTable>) -> (History, Self) {
        let (sender, notes) = bounded(NOTES_MAX);
        let dropped = Arc::<AtomicU64>::default();
        let history =
            History { notes: sender, dropped: Arc::clone(&dropped), table: Arc::clone(table) };
        let historian = Self {
            store: Arc::clone(store),
            table: Arc::clone(table),
            reporter: Reporter::new(table),
            notes,
            dropped,
            pending: Vec::new(),
            trouble: Trouble::default(),
        };
        (history, historian)
    }

    /// Writes until told to stop, and then what is still queued.
    pub fn run(mut self, stop: &Stop) {
        loop {
            if self.pending.is_empty() {
                select! {
                    recv(stop.receiver()) -> _ => break,
                    recv(self.notes) -> note => match note {
                        Ok(note) => self.pending.push(note),
                        Err(_) => return,
                    },
                }
            }
            if stop.within(self.step(self.table.timings().store_timeout)) {
                break;
            }
        }
        self.finish();
    }

    /// Writes what is still queued, for at most one store timeout.
    fn finish(&mut self) {
        let deadline = self.table.now() + self.table.timings().store_timeout;
        loop {
            self.fill();
            let left = deadline.since(self.table.now());
            if self.pending.is_empty() || left.is_zero() {
                break;
            }
            self.step(left);
            if self.trouble.is_on() {
                break;
            }
        }
        let lost = self.pending.len() + self.notes.len();
        self.dropped.fetch_add(u64::try_from(lost).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.tell_dropped();
    }

    fn fill(&mut self) {
        let room = BATCH_MAX.saturating_sub(self.pending.len());
        self.pending.extend(self.notes.try_iter().take(room));
    }

    /// Writes one batch. Returns how long to pause.
    pub fn step(&mut self, timeout: Duration) -> Duration {
        self.fill();
        let began = self.table.now();
        let aged = |(at, note): &(Moment, Note)| Note { age: began.since(*at), ..note.clone() };
        let batch: Vec<Note> = self.pending.iter().map(aged).collect();
        let written = self.store.remember(&batch, timeout);
        // Notes that may have been sent are not sent again: a note is in the stream once or not at all.
        if !written.as_ref().is_err_and(was_not_sent) {
            self.pending.clear();
        }
        self.tell(written.as_ref().err());
        if written.is_err() {
            return PAUSE_MAX;
        }
        if self.notes.is_empty() {
            self.tell_dropped();
        }
        (self.table.now().since(began) * (WRITING_SHARE - 1)).min(PAUSE_MAX)
    }

    fn tell(&mut self, error: Option<&StoreError>) {
        let change = self.trouble.update(error.map(ToString::to_string));
        self.reporter.report_change(
            change,
            |error| Event::HistoryFailed { error },
            Event::HistoryResumed,
        );
    }

    fn tell_dropped(&self) {
        let entries = self.dropped.swap(0, Ordering::Relaxed);
        if entries > 0 {
            self.reporter.report(&Event::HistoryDropped { entries });
        }
    }
}

fn was_not_sent(error: &StoreError) -> bool {
    error.fault == Fault::Unreachable && error.op == "connect to"
}
