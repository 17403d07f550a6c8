//! What do threads of an instance tell each other through the table, because each of them has it?

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::lease::table::OwnershipTable;

/// What a thread tells, and others read.
pub(super) struct Signals {
    /// Whether the store answered the last publication.
    publishing: AtomicBool,
    /// Wakes a shutdown.
    shutdown_progress: (Sender<()>, Receiver<()>),
}

impl Default for Signals {
    fn default() -> Self {
        Self { publishing: AtomicBool::new(true), shutdown_progress: bounded(1) }
    }
}

impl OwnershipTable {
    /// Whether the store answers the publications of this instance. While it does not, the instance announces weight 0.
    pub fn is_publishing(&self) -> bool {
        self.signals.publishing.load(Ordering::Relaxed)
    }

    /// For the thread `publish`: whether the store answered its last publication.
    pub fn set_publishing(&self, publishing: bool) {
        self.signals.publishing.store(publishing, Ordering::Relaxed);
    }

    /// A poll of a draining lease has ended, or a heartbeat was confirmed: a shutdown may have more to release.
    pub fn note_shutdown_progress(&self) {
        let _ = self.signals.shutdown_progress.0.try_send(()); // one queued wake-up is enough
    }

    /// Receives a wake-up when a shutdown may have more to release.
    pub fn shutdown_progress(&self) -> &Receiver<()> {
        &self.signals.shutdown_progress.1
    }
}
