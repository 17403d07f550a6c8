//! Who has what. Instances say what they took and let go; that is believed while it fits what is known,
//! and read in the store where it does not. Each lease is also watched by one: who would be the next to take it.

use std::collections::BTreeSet;
use std::time::Duration;

use fnv::FnvHashSet;

use crate::clock::Moment;
use crate::fleet::informer::{Informer, JUST_AFTER, PushSupport};
use crate::model::{EndpointId, InstanceId};
use crate::store::{BATCH_MAX, PeerMessage, StoreError};

/// An heir that asked is alive, but may be slow: it gets this long to take what was freed for it …
const HEIR_PATIENCE: Duration = Duration::from_secs(2);
/// … and this long where it may not be told, or looks at everything again and again and may be busy with that.
const UNHEARD_HEIR_PATIENCE: Duration = Duration::from_secs(5);
/// Where nobody says who took what, owners are read in turn at every quick check: this many by all instances together, which
/// costs a server about a sixtieth of its time.
const OWNERS_READ_BY_ALL: usize = 20_000;
/// A grant that was announced is looked up this much later by the instance that watches the lease.
const LOOKED_UP_AFTER: Duration = Duration::from_millis(250);

impl Informer {
    pub(super) fn hear_word(&mut self, word: &PeerMessage) {
        let now = self.table.now();
        // A newcomer; or one that says nothing else may be saying that it leaves.
        let empty = PeerMessage { to: word.to.clone(), ..PeerMessage::new(&word.from, None) };
        if !self.view.is_live(&word.from) || *word == empty {
            self.to_meet.insert(word.from.clone());
        }
        if !word.took.is_empty() {
            self.note_activity();
            self.given.acts(&word.from);
        }
        for endpoint in word.took.iter().chain(&word.freed).chain(&word.dropped) {
            self.given.had(endpoint, &word.from);
        }
        for endpoint in &word.took {
            self.believe(endpoint, &word.from, Some(&word.from), now + LOOKED_UP_AFTER);
        }
        for endpoint in &word.discrepancies {
            self.hear_sessions(&[endpoint.to_string()]);
            self.checks.insert((now, endpoint.clone()));
        }
        // An owner that lets go for somebody: until that one comes, it is as good as its.
        let until = now + self.heir_patience();
        for endpoint in &word.freed {
            if let Some(heir) = word.heir.as_ref().filter(|it| **it != self.me) {
                self.given.give(endpoint, &word.from, heir, (now, until));
            }
            self.believe(endpoint, &word.from, word.heir.as_ref(), until);
        }
        // Nobody is to poll it, it says. Everybody reads that for itself, since each might have to.
        for endpoint in &word.dropped {
            self.believe(endpoint, &word.from, None, now);
            // One that is not in the view was read and found gone or idle.
            if self.view.contains(endpoint) && self.view.owner(endpoint).is_none() {
                self.to_read.insert(endpoint.clone());
            }
        }
    }

    /// `from` says that `endpoint` has this owner now. The instance that watches it looks that up at `check_at`.
    fn believe(
        &mut self,
        endpoint: &EndpointId,
        from: &InstanceId,
        owner: Option<&InstanceId>,
        check_at: Moment,
    ) {
        if self.table.holds(endpoint) || !self.view.contains(endpoint) {
            return; // we know better, or have not heard of it
        }
        let known = self.view.owner(endpoint);
        let contradicts = known.is_some_and(|it| it != from && self.view.is_live(it));
        if contradicts && known != owner {
            self.checks.insert((self.table.now(), endpoint.clone()));
            return;
        }
        let owner = owner.filter(|it| **it != self.me);
        self.set_owner(endpoint, owner);
        if owner.is_some() && self.view.watches(&self.me, endpoint) {
            self.checks.insert((check_at, endpoint.clone()));
        }
    }

    fn set_owner(&mut self, endpoint: &EndpointId, owner: Option<&InstanceId>) {
        self.stale |= self.view.set_owner(endpoint, owner);
        let Some(owner) = owner else { return self.read_if_free(endpoint) };
        self.lapsed.remove(endpoint);
        if *owner != self.me {
            self.forget_session(endpoint);
        }
    }

    /// Nobody alive has it.
    pub(crate) fn is_free(&self, endpoint: &EndpointId) -> bool {
        self.view.owner(endpoint).is_none_or(|it| !self.view.is_live(it))
    }

    /// What a round or a sweep has found to be different since this was last asked.
    pub(crate) fn take_surprises(&mut self) -> Vec<EndpointId> {
        std::mem::take(&mut self.discrepancies)
    }

    /// We let this go, for somebody or for whomever the plan says.
    pub(crate) fn gave(&mut self, endpoint: &EndpointId, heir: Option<&InstanceId>) {
        self.forget_session(endpoint);
        self.stale |= self.view.set_owner(endpoint, heir);
        if let Some(heir) = heir {
            let now = self.table.now();
            let until = now + self.heir_patience();
            self.given.give(endpoint, &self.me, heir, (now, until));
            self.checks.insert((until, endpoint.clone()));
        }
    }

    /// How long an heir has to take what was released for it.
    fn heir_patience(&self) -> Duration {
        let hears_all = self.hears_words && self.hearing == PushSupport::Changes;
        if hears_all { HEIR_PATIENCE } else { UNHEARD_HEIR_PATIENCE }
    }

    /// Whether words of others reach us. Where they do not, leases change hands by looking.
    pub(crate) fn receives_messages(&self) -> bool {
        self.hears_words
    }

    /// We have it. If we took it because its heir did not come, that is remembered; if it was given back, the heir
    /// had come, whether we knew or not.
    pub(crate) fn acquired(&mut self, endpoint: &EndpointId, fell_back: bool) {
        let me = self.me.clone();
        self.given.close(endpoint, Some(&me), fell_back);
        self.owned(endpoint, &me);
    }

    /// Nothing is granted now, so no heir failed to come.
    pub(crate) fn forgive_heirs(&mut self) {
        self.given.forget();
    }

    /// Heirs that did not take what was released for them, and instances that took something, since the last time.
    pub(crate) fn take_hand_overs(&mut self) -> (BTreeSet<InstanceId>, BTreeSet<InstanceId>) {
        self.given.take_news()
    }

    /// The store says who owns this.
    pub(crate) fn owned(&mut self, endpoint: &EndpointId, owner: &InstanceId) {
        if *owner != self.me && !self.view.is_live(owner) {
            self.to_meet.insert(owner.clone());
        }
        self.set_owner(endpoint, Some(owner));
    }

    /// Reads again who owns what this one seems to own.
    pub(crate) fn doubt(&mut self, instance: &InstanceId) {
        let now = self.table.now();
        self.checks.extend(self.view.owned_by(instance).into_iter().map(|it| (now, it)));
    }

    /// Reads who owns this in a while.
    pub(crate) fn check_at(&mut self, at: Moment, endpoint: &EndpointId) {
        self.checks.insert((at, endpoint.clone()));
    }

    /// What was lost is no longer ours.
    pub(super) fn see_losses(&mut self) {
        let losses = self.table.losses();
        if std::mem::replace(&mut self.losses, losses) == losses {
            return;
        }
        for endpoint in self.view.owned_by(&self.me) {
            if !self.table.holds(&endpoint) {
                self.forget_session(&endpoint);
                self.stale |= self.view.set_owner(&endpoint, None);
            }
        }
    }

    pub(super) fn check_owners(
        &mut self,
        now: Moment,
        exchanges: &mut usize,
    ) -> Result<(), StoreError> {
        while *exchanges > 0 {
            let (due, endpoints) = due(&self.checks, now);
            if due.is_empty() {
                break;
            }
            *exchanges -= 1;
            self.read_owners(&endpoints)?;
            for it in &due {
                self.checks.remove(it);
            }
        }
        while *exchanges > 0 {
            let (due, endpoints) = due(&self.ends, now);
            if due.is_empty() {
                break;
            }
            *exchanges -= 1;
            let held = |it: &Self, endpoint: &EndpointId| !it.is_free(endpoint);
            let endpoints: Vec<EndpointId> =
                endpoints.into_iter().filter(|it| held(self, it)).collect();
            self.read_ends(&endpoints)?;
            for it in &due {
                self.ends.remove(it);
            }
            let lapsed: Vec<EndpointId> =
                endpoints.into_iter().filter(|it| !held(self, it)).collect();
            self.lapsed.extend(lapsed);
        }
        Ok(())
    }

    /// Reads who owns these now; false when the store could not be asked.
    pub(crate) fn check_now(&mut self, endpoints: &[EndpointId]) -> bool {
        for batch in endpoints.chunks(BATCH_MAX) {
            if let Err(error) = self.read_owners(batch) {
                self.trouble(&error);
                return false;
            }
        }
        true
    }

    pub(super) fn read_owners(&mut self, endpoints: &[EndpointId]) -> Result<(), StoreError> {
        let asked_at = self.table.now();
        let found = self.store.owners(endpoints, self.table.timings().store_timeout)?;
        for (endpoint, owner) in endpoints.iter().zip(&found) {
            self.take_in_owner(endpoint, owner.as_ref(), asked_at);
        }
        Ok(())
    }

    /// Sessions and heartbeats are pushed, but nobody says who took what: the owners are read in turn.
    pub(super) fn read_some_owners(&mut self) -> Result<(), StoreError> {
        let count = OWNERS_READ_BY_ALL / self.view.instance_count().max(1);
        let mut from = if self.owners_from < self.view.places() { self.owners_from } else { 0 };
        let some = self.view.page(&mut from, count.max(1));
        for batch in some.chunks(BATCH_MAX) {
            self.read_owners(batch)?;
        }
        self.owners_from = from;
        Ok(())
    }

    /// Reads the owners of leases that wane, and when each of them will end (R9).
    fn read_ends(&mut self, endpoints: &[EndpointId]) -> Result<(), StoreError> {
        let asked_at = self.table.now();
        let found = self.store.leases(endpoints, self.table.timings().store_timeout)?;
        for (endpoint, lease) in endpoints.iter().zip(found) {
            self.take_in_owner(endpoint, lease.as_ref().map(|it| &it.it), asked_at);
            let left = lease.map(|it| it.left).filter(|it| *it < self.lasts_when_kept());
            if let Some(left) = left.filter(|_| !self.is_free(endpoint)) {
                self.ends.insert((asked_at + left + JUST_AFTER, endpoint.clone()));
            }
        }
        Ok(())
    }

    /// The store said at `asked_at` or later who has it.
    fn take_in_owner(
        &mut self,
        endpoint: &EndpointId,
        found: Option<&InstanceId>,
        asked_at: Moment,
    ) {
        // What we hold is ours, also when the store has just forgotten it and a renewal is on its way.
        if self.table.holds(endpoint) {
            self.given.close(endpoint, Some(&self.me), false);
            self.stale |= self.view.set_owner(endpoint, Some(&self.me));
            return;
        }
        let heir = self.given.heir(endpoint, asked_at).filter(|_| found.is_none()).cloned();
        if heir.is_some() {
            return self.set_owner(endpoint, heir.as_ref());
        }
        if let Some(owner) = found.filter(|it| self.view.owner(endpoint) != Some(*it)) {
            self.given.acts(owner);
        }
        // An heir that is gone, or of what nobody is to poll any more, was not to come.
        let heir_lives = self.view.owner(endpoint).is_some_and(|it| self.view.is_live(it));
        self.given.close(endpoint, found, heir_lives && self.view.contains(endpoint));
        match found {
            // R7: under our name, but not held: the reply to the grant was lost, or we lost it. Free to us.
            Some(owner) if *owner == self.me => self.set_owner(endpoint, None),
            Some(owner) => self.owned(endpoint, owner),
            // Left by the dead: free, and it shows why.
            None if self.is_free(endpoint) && self.is_orphan(endpoint) => (),
            None => self.set_owner(endpoint, None),
        }
    }

    /// Whether its last owner left without a word.
    pub(crate) fn is_orphan(&self, endpoint: &EndpointId) -> bool {
        let dead = self.view.owner(endpoint).is_some_and(|it| !self.view.is_live(it));
        dead || self.lapsed.contains(endpoint)
    }

    /// A lease that is renewed in time always lasts for at least this long.
    fn lasts_when_kept(&self) -> Duration {
        self.table.timings().lease.ttl * 2 / 3
    }

    /// Looks after the leases that this instance would be the next to take: who owns them, all in turn; and whether
    /// they are still renewed, one of each owner at every glance. An owner that stops renewing one, and so
    /// probably all, is seen long before the first of them ends (R9). False when there was none.
    pub(super) fn make_round(&mut self, now: Moment) -> Result<bool, StoreError> {
        let (mut cursor, since) = self.round;
        let share = now.since(since).as_secs_f64() / self.round_period().as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to a view's size"
        )]
        #[expect(clippy::cast_precision_loss, reason = "a part of a round, rounded up")]
        let count = (self.view.len() as f64 * share.min(1.0)).ceil() as usize;
        let watched = self.view.watched(&self.me, &mut cursor, count);
        for endpoint in &watched {
            if let Some(owner) = self.view.owner(endpoint) {
                self.samples.insert(owner.clone(), endpoint.clone());
            }
        }
        for batch in watched.chunks(BATCH_MAX) {
            self.surprised_by(batch, Self::read_owners)?;
        }
        self.samples
            .retain(|owner, it| self.view.owner(it) == Some(owner) && self.view.is_live(owner));
        let samples: Vec<EndpointId> = self.samples.values().cloned().collect();
        let (soon, timeout) = (self.lasts_when_kept(), self.table.timings().store_timeout);
        for batch in samples.chunks(BATCH_MAX) {
            let expiring = self.store.expiring(batch, soon, timeout)?;
            self.look_at_waning(expiring)?;
        }
        self.round = (cursor, now);
        Ok(!samples.is_empty())
    }

    /// Other instances may have missed what is found to be different, too.
    fn surprised_by(
        &mut self,
        endpoints: &[EndpointId],
        read: fn(&mut Self, &[EndpointId]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let owner = |it: &Self, endpoint: &EndpointId| it.view.owner(endpoint).cloned();
        let before: Vec<_> = endpoints.iter().map(|it| owner(self, it)).collect();
        read(self, endpoints)?;
        let changed = endpoints.iter().zip(before).filter(|it| owner(self, it.0) != it.1);
        let changed: Vec<EndpointId> = changed.map(|it| it.0.clone()).collect();
        self.discrepancies.extend(changed);
        Ok(())
    }

    fn look_at_waning(&mut self, expiring: Vec<EndpointId>) -> Result<(), StoreError> {
        if expiring.is_empty() {
            return Ok(());
        }
        // What ends with the one that was looked at: whatever else its owner has and this instance watches.
        let owners: BTreeSet<InstanceId> =
            expiring.iter().filter_map(|it| self.view.owner(it).cloned()).collect();
        let mut expiring: BTreeSet<EndpointId> = expiring.into_iter().collect();
        for it in &owners {
            let theirs = self.view.owned_by(it).into_iter();
            expiring.extend(theirs.filter(|it| self.view.watches(&self.me, it)));
        }
        let known: FnvHashSet<EndpointId> = self.ends.iter().map(|it| it.1.clone()).collect();
        let expiring: Vec<EndpointId> =
            expiring.into_iter().filter(|it| !known.contains(it)).collect();
        for batch in expiring.chunks(BATCH_MAX) {
            self.surprised_by(batch, Self::read_ends)?;
        }
        Ok(())
    }

    /// How long it takes to look at every lease once.
    fn round_period(&self) -> Duration {
        self.table.timings().lease.ttl * 2
    }
}

/// A batch of those whose time has come.
fn due(
    times: &BTreeSet<(Moment, EndpointId)>,
    now: Moment,
) -> (Vec<(Moment, EndpointId)>, Vec<EndpointId>) {
    let due = times.iter().take_while(|it| it.0 <= now).take(BATCH_MAX);
    due.cloned().map(|it| (it.clone(), it.1)).unzip()
}
