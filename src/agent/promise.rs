//! Until when may a client take itself for the holder? Never longer than the lease lasts, nor than the session can. Pure.

use std::time::Duration;

use crate::agent::protocol::Lasts;
use crate::clock::Moment;

/// What one client has been told.
#[derive(Debug)]
pub(crate) struct Promise {
    /// When the client was heard last.
    pub(crate) heard_at: Moment,
    /// The session ends when the client is silent for this long.
    pub(crate) bound: Option<Duration>,
    /// The agent stops then.
    pub(crate) stops_at: Moment,
    /// The latest end that the client was told.
    given_until: Moment,
}

impl Promise {
    pub(crate) fn new(now: Moment) -> Self {
        Self { heard_at: now, bound: None, stops_at: Moment::MAX, given_until: Moment::MIN }
    }

    /// What the client is told about a right that ends at `deadline`. A frozen client must not outlive its session, so the
    /// end of the session counts, too, from what the client sent last.
    pub(crate) fn give(&mut self, now: Moment, deadline: Moment) -> Lasts {
        let until = deadline.min(self.silent_at()).min(self.stops_at);
        self.given_until = self.given_until.max(until);
        Lasts { now, until }
    }

    /// When the session ends unless the client is heard.
    pub(crate) fn silent_at(&self) -> Moment {
        self.bound.map_or(Moment::MAX, |it| self.heard_at + it)
    }

    /// When nothing is left of what the client was told.
    pub(crate) fn over_at(&self) -> Moment {
        self.given_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn nothing_is_promised_past_the_lease_the_session_or_the_stop() {
        let mut promise = Promise::new(at(100));
        assert_eq!(promise.give(at(100), at(900)).until, at(900));
        promise.bound = Some(Duration::from_millis(300));
        assert_eq!(promise.give(at(150), at(900)).until, at(400), "from when it was heard");
        promise.heard_at = at(200);
        assert_eq!(promise.give(at(250), at(900)).until, at(500));
        assert_eq!(promise.give(at(250), at(300)).until, at(300));
        promise.stops_at = at(280);
        assert_eq!(promise.give(at(250), at(300)).until, at(280));
        assert_eq!(promise.over_at(), at(900), "the first promise is not taken back");
    }
}
