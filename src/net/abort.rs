//! How does another thread stop a running poll? A switch that fires once.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Fired when the right to a running poll is lost. The poller arms it with what stops the poll.
#[derive(Default)]
pub struct Abort {
    armed: Mutex<Option<Stopper>>,
    /// Written under the lock of `armed`, once; read without it by threads that must not wait.
    fired: AtomicBool,
    panicked: AtomicBool,
}

type Stopper = Box<dyn FnOnce() + Send>;

impl Abort {
    /// Says how to stop what is about to run (shut a socket down, kill a process group). Replaces
    /// an earlier way; if the switch has fired already, `stop` runs at once on this thread.
    ///
    /// ```
    /// use std::net::{Shutdown, TcpStream};
    /// use leasehold::Abort;
    ///
    /// fn ends_with(abort: &Abort, stream: &TcpStream) -> std::io::Result<()> {
    ///     let stream = stream.try_clone()?;
    ///     abort.arm(move || drop(stream.shutdown(Shutdown::Both)));
    ///     Ok(())
    /// }
    /// ```
    pub fn arm(&self, stop: impl FnOnce() + Send + 'static) {
        let mut armed = self.armed.lock();
        if self.is_fired() {
            drop(armed);
            stop();
        } else {
            *armed = Some(Box::new(stop));
        }
    }

    /// Forgets how to stop it: what was armed has ended by itself.
    ///
    /// ```
    /// let abort = leasehold::Abort::default();
    /// abort.arm(|| panic!("it has ended by itself"));
    /// abort.disarm();
    /// abort.fire();
    /// ```
    pub fn disarm(&self) {
        *self.armed.lock() = None;
    }

    /// Stops the poll, now or as soon as it is armed. Quick, and harmless when repeated. What was armed belongs to the
    /// poller: its panic ends nobody else's thread (R12).
    ///
    /// ```
    /// let abort = leasehold::Abort::default();
    /// assert!(!abort.is_fired());
    /// abort.fire();
    /// assert!(abort.is_fired());
    /// ```
    pub fn fire(&self) {
        let armed = {
            let mut armed = self.armed.lock();
            self.fired.store(true, Ordering::SeqCst);
            armed.take()
        };
        if armed.is_some_and(|it| catch_unwind(AssertUnwindSafe(it)).is_err()) {
            self.panicked.store(true, Ordering::SeqCst);
        }
    }

    /// Whether what was armed has panicked, so that the poll may go on although it was to be stopped.
    pub fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::SeqCst)
    }

    /// Whether the poll must not go on. Never waits.
    pub fn is_fired(&self) -> bool {
        self.fired.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Abort(fired: {})", self.is_fired())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn counted() -> (Arc<AtomicU32>, impl Fn() + Clone + Send + 'static) {
        let count = Arc::new(AtomicU32::new(0));
        let same = Arc::clone(&count);
        (count, move || {
            same.fetch_add(1, Ordering::SeqCst);
        })
    }

    #[test]
    fn a_switch_that_fired_before_it_was_armed_still_stops_the_poll() {
        let (count, stop) = counted();
        let abort = Abort::default();
        abort.fire();
        abort.arm(stop);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    /// R12: user code must not end the thread that ends leases.
    #[test]
    fn a_switch_outlives_what_panics_in_it() {
        let abort = Abort::default();
        abort.arm(|| panic!("deliberately"));
        abort.fire();
        assert!(abort.is_fired() && abort.has_panicked());
    }

    #[test]
    fn a_switch_stops_what_is_armed_once_and_nothing_that_has_ended() {
        let (count, stop) = counted();
        let abort = Abort::default();
        abort.arm(stop.clone());
        abort.fire();
        abort.fire();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        let abort = Abort::default();
        abort.arm(stop);
        abort.disarm();
        abort.fire();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert!(abort.is_fired());
    }
}
