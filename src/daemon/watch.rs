//! Turns what the store and other instances say into nudges. Hints only: losing every one merely delays.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::daemon::reconcile::Nudge;
use crate::model::InstanceId;
use crate::store::{Ear, Store, Wake};

/// How long one wait for a word lasts where a stop does not end it ([`Watch::woken_by`]).
const WAIT: Duration = Duration::from_millis(200);

/// The thread `watch`: wakes on a push from the store.
pub struct Watch {
    store: Arc<dyn Store>,
    me: InstanceId,
    timeout: Duration,
    nudge: Box<dyn FnMut(Nudge) + Send>,
    ear: Option<Box<dyn Ear>>,
    /// Ends a wait for a word.
    wire: Option<Arc<UnixStream>>,
    told: bool,
    /// What was said to be refused: once per change.
    refused: Option<String>,
}

impl Watch {
    /// Listens for `me` and passes everything on, in order.
    pub fn new(
        store: Arc<dyn Store>,
        me: InstanceId,
        timeout: Duration,
        nudge: impl FnMut(Nudge) + Send + 'static,
    ) -> Self {
        let (ear, wire, refused) = (None, None, None);
        Self { store, me, timeout, nudge: Box::new(nudge), ear, wire, told: false, refused }
    }

    /// Waits for no word any more once this wire can be read.
    pub fn woken_by(self, wire: UnixStream) -> Self {
        Self { wire: Some(Arc::new(wire)), ..self }
    }

    /// Waits for a word and passes it on; how long to wait before the next try.
    pub fn step(&mut self) -> Duration {
        let heard = match &mut self.ear {
            Some(ear) => ear.next(WAIT),
            None => match self.store.listen(&self.me, self.timeout) {
                Ok(mut ear) => {
                    self.wire.iter().for_each(|it| ear.wake_by(it));
                    let refused = ear.refused().map(str::to_owned);
                    let news = refused.clone().filter(|it| self.refused.as_ref() != Some(it));
                    self.refused = refused;
                    self.tell(ear.hears_words(), ear.hears_changes(), news);
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
                heard.into_iter().for_each(|it| (self.nudge)(Nudge::Heard(it)));
                Duration::ZERO
            }
            Err(_) => {
                if self.ear.take().is_some() || !self.told {
                    self.tell(false, false, None);
                }
                Duration::from_secs(1).min(self.timeout)
            }
        }
    }

    fn tell(&mut self, words: bool, changes: bool, refused: Option<String>) {
        self.told = true;
        (self.nudge)(Nudge::Listening { words, changes, refused });
    }
}
