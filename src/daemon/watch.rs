//! Turns what the store and other instances say into nudges. Hints only: losing every one merely delays.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::daemon::reconcile::Nudge;
use crate::model::InstanceId;
use crate::store::{Changes, Ear, Heard, Store, Wake};

/// How long one wait for a word lasts, and so how long a stop may take.
const WAIT: Duration = Duration::from_millis(200);

/// The thread `watch`: wakes on a push from the store.
pub struct Watch {
    store: Arc<dyn Store>,
    me: InstanceId,
    timeout: Duration,
    nudges: Sender<Nudge>,
    beat_now: Sender<()>,
    ear: Option<Box<dyn Ear>>,
    told: bool,
}

impl Watch {
    /// Listens for `me`. Reconcile hears all of it, the heartbeat of changes to who is to hold nothing.
    pub fn new(
        store: Arc<dyn Store>,
        me: InstanceId,
        timeout: Duration,
        nudges: Sender<Nudge>,
        beat_now: Sender<()>,
    ) -> Self {
        Self { store, me, timeout, nudges, beat_now, ear: None, told: false }
    }

    /// Waits for a word and passes it on; how long to wait before the next try.
    pub fn step(&mut self) -> Duration {
        let heard = match &mut self.ear {
            Some(ear) => ear.next(WAIT),
            None => match self.store.listen(&self.me, self.timeout) {
                Ok(ear) => {
                    self.tell(ear.hears_changes());
                    self.ear = Some(ear);
                    // Those who hear only words would not know of us.
                    let _ = self.store.wake(&[Wake::new(&self.me, None)], self.timeout);
                    return Duration::ZERO;
                }
                Err(error) => Err(error),
            },
        };
        match heard {
            Ok(heard) => {
                heard.into_iter().for_each(|it| self.pass_on(it));
                Duration::ZERO
            }
            Err(_) => {
                if self.ear.take().is_some() || !self.told {
                    self.tell(false);
                }
                Duration::from_secs(1).min(self.timeout)
            }
        }
    }

    fn tell(&mut self, changes: bool) {
        self.told = true;
        self.nudge(Nudge::Listening { changes });
    }

    fn pass_on(&self, heard: Heard) {
        if matches!(heard, Heard::Changed(Changes { drain: true, .. }) | Heard::Everything) {
            // One that waits already is enough.
            let _ = self.beat_now.try_send(());
        }
        self.nudge(Nudge::Heard(heard));
    }

    fn nudge(&self, nudge: Nudge) {
        // Waits while reconcile is busy: what was dropped here could be missed for minutes. The server
        // hangs up on an ear that does not listen, and then everything is looked at.
        let _ = self.nudges.send(nudge);
    }
}
