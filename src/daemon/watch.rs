//! Turns words from other instances into nudges. Hints only: losing every one merely delays.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::daemon::reconcile::Nudge;
use crate::model::InstanceId;
use crate::store::{Ear, Store};

/// How long one wait for a word lasts, and so how long a stop may take.
const WAIT: Duration = Duration::from_millis(200);

/// The thread `watch`: wakes on a push from the store.
pub struct Watch {
    store: Arc<dyn Store>,
    me: InstanceId,
    timeout: Duration,
    nudges: Sender<Nudge>,
    ear: Option<Box<dyn Ear>>,
}

impl Watch {
    /// Listens for `me`.
    pub fn new(
        store: Arc<dyn Store>,
        me: InstanceId,
        timeout: Duration,
        nudges: Sender<Nudge>,
    ) -> Self {
        Self { store, me, timeout, nudges, ear: None }
    }

    /// Waits for a word and passes it on; how long to wait before the next try.
    pub fn step(&mut self) -> Duration {
        let heard = match &mut self.ear {
            Some(ear) => ear.next(WAIT),
            None => match self.store.listen(&self.me, self.timeout) {
                Ok(ear) => {
                    self.ear = Some(ear);
                    // Words said while nobody listened are lost: look for what they were about.
                    self.nudge(Nudge::Look);
                    return Duration::ZERO;
                }
                Err(error) => Err(error),
            },
        };
        match heard {
            Ok(word) => {
                word.into_iter().for_each(|it| self.nudge(Nudge::Heard(it)));
                Duration::ZERO
            }
            Err(_) => {
                self.ear = None;
                Duration::from_secs(1).min(self.timeout)
            }
        }
    }

    fn nudge(&self, nudge: Nudge) {
        // Full: a look is due anyway, and shows what this word was about.
        let _ = self.nudges.try_send(nudge);
    }
}
