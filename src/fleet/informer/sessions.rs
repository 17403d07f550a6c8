//! Which endpoints exist? Reads sessions, keeps those of this instance in the cache, and adds and removes endpoints of
//! the view.
//!
//! The first resync adds all names unread: an owner reads its sessions, and every instance reads the sessions that stay
//! unowned, because each may be paused or invalid. Later a name enters the view only after this instance has read its
//! session and found that it is to be polled. A written key may be anything: a new session, a session that nobody polls,
//! a key of another application, or (invalidations name keys of all databases) a key of another database.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fnv::FnvHashSet;

use crate::clock::Moment;
use crate::fleet::informer::context::{Budget, ReadContext};
use crate::fleet::informer::deferred_reads::DeferredReads;
use crate::fleet::informer::invalid_reports::InvalidReports;
use crate::fleet::informer::pause_ends::PauseEnds;
use crate::fleet::informer::tracked_view::TrackedView;
use crate::fleet::informer::unknown_names::UnknownNames;
use crate::fleet::session_cache::{SessionCache, SessionChanges};
use crate::fleet::view::View;
use crate::model::{EndpointId, Session};
use crate::store::StoreError;

/// How many sessions one exchange reads: each may be large.
pub(super) const SESSIONS_AT_ONCE: usize = 200;
/// How many sessions are read again at each quick check where changes are not pushed.
const AGAIN_MAX: usize = 1_000;
/// A session that nobody has acquired for this long may be one that nobody is to poll: every instance reads it.
const UNREAD_MAX: Duration = Duration::from_millis(500);

/// A pause that was to end by now is looked at again after this: the estimate of the server's clock is not exact.
const PAUSE_AGAIN: Duration = Duration::from_millis(20);

/// What is known about sessions, and which of them are to be read.
#[derive(Default)]
pub(super) struct Sessions {
    cache: SessionCache,
    changes: SessionChanges,
    reports: InvalidReports,
    /// Sessions that the next step reads.
    to_read: BTreeSet<EndpointId>,
    /// Sessions that are read later if they are still free: each may be one that nobody is to poll.
    deferred: DeferredReads,
    /// Paused sessions that are read when their pause ends.
    pauses: PauseEnds,
    unknown: UnknownNames,
    /// Where changes are not pushed: the sessions still to be read again in this turn.
    read_again: Vec<EndpointId>,
    /// Last time free endpoints were expected (acquisitions or a hold-off in progress).
    active_at: Moment,
    /// Sessions that were missing while the store held off.
    missing_in_hold_off: FnvHashSet<EndpointId>,
    /// Endpoints that entered the view, and when, since the informer last took them.
    entered: Vec<(Moment, EndpointId)>,
}

impl Sessions {
    /// Whether the next step has sessions to read.
    pub(super) fn has_more(&self) -> bool {
        !self.to_read.is_empty()
    }

    /// When the next step has something to do.
    pub(super) fn due(&self) -> Moment {
        if self.has_more() {
            return Moment::MIN;
        }
        let deferred = self.deferred.next().map(|it| it.max(self.active_at + UNREAD_MAX));
        deferred
            .into_iter()
            .chain(self.unknown.next())
            .chain(self.pauses.next())
            .min()
            .unwrap_or(Moment::MAX)
    }

    /// Reads the sessions that were written, and those whose time has come.
    pub(super) fn step(
        &mut self,
        context: &ReadContext,
        view: &mut TrackedView,
        is_settled: bool,
        budget: &mut Budget,
    ) -> Result<(), StoreError> {
        self.report_invalid(context);
        if let Some(left) = context.table.hold_off() {
            self.active_at = context.now() + left;
        } else if !is_settled {
            self.note_activity(context.now()); // other instances may be about to settle, too
        } else {
            self.to_read.extend(std::mem::take(&mut self.missing_in_hold_off));
            self.take_deferred(context, view);
        }
        self.to_read.extend(std::iter::from_fn(|| self.pauses.take_due(context.now())));
        self.look_up_unknown(context, budget)?;
        while self.has_more() && budget.spend() {
            let batch: Vec<EndpointId> =
                self.to_read.iter().take(SESSIONS_AT_ONCE).cloned().collect();
            self.read(context, view, &batch)?;
            for endpoint in &batch {
                self.to_read.remove(endpoint);
            }
        }
        Ok(())
    }

    /// The key of a session was written or removed; its endpoint, unless the name is invalid.
    pub(super) fn written(
        &mut self,
        context: &ReadContext,
        view: &View,
        name: &str,
    ) -> Option<EndpointId> {
        let endpoint = self.named(name)?;
        if context.table.holds(&endpoint) {
            self.to_read.insert(endpoint.clone());
        } else if view.contains(&endpoint) {
            // The owner reads it now, or the instance that is about to acquire it.
            self.cache.forget(&endpoint);
            self.read_if_free(context, &endpoint);
        } else {
            self.unknown.insert(endpoint.clone());
        }
        Some(endpoint)
    }

    /// The endpoint of the session with this name. An invalid name is reported later.
    pub(super) fn named(&mut self, name: &str) -> Option<EndpointId> {
        self.cache.named(name, &mut self.changes)
    }

    /// A resync has listed every name.
    pub(super) fn end_listing(&mut self) {
        self.cache.end_listing();
    }

    pub(super) fn report_invalid(&mut self, context: &ReadContext) {
        self.reports.report(context, &mut self.changes);
    }

    /// Reads these in the next step.
    pub(super) fn read_soon(&mut self, endpoints: impl IntoIterator<Item = EndpointId>) {
        self.to_read.extend(endpoints);
    }

    /// How many sessions wait to be read.
    pub(super) fn waiting(&self) -> usize {
        self.to_read.len()
    }

    /// Of the written names that are not in the view, the next reads take those that are stored at all.
    fn look_up_unknown(
        &mut self,
        context: &ReadContext,
        budget: &mut Budget,
    ) -> Result<(), StoreError> {
        let (now, timeout) = (context.now(), context.timeout());
        loop {
            let batch = self.unknown.due(now);
            if batch.is_empty() || !budget.spend() {
                return Ok(());
            }
            // A name that was stored when it was last read is read. Of the others maybe none is stored.
            let (known, unknown): (Vec<EndpointId>, Vec<EndpointId>) =
                batch.iter().cloned().partition(|it| self.cache.knows(it));
            if !unknown.is_empty() && context.store.any_session(&unknown, timeout)? {
                self.to_read.extend(unknown);
            }
            self.to_read.extend(known);
            self.unknown.looked_up(&batch, now);
        }
    }

    /// Reads the session after `UNREAD_MAX` if its endpoint is free then: an instance that acquires it reads it sooner.
    pub(super) fn read_if_free(&mut self, context: &ReadContext, endpoint: &EndpointId) {
        if !self.cache.knows(endpoint) {
            self.deferred.put(context.now() + UNREAD_MAX, endpoint);
        }
    }

    /// Some instance acquires leases, or is about to: endpoints that are still free are no sign of a session that nobody is
    /// to poll.
    pub(super) fn note_activity(&mut self, now: Moment) {
        self.active_at = self.active_at.max(now);
    }

    fn take_deferred(&mut self, context: &ReadContext, view: &View) {
        let now = context.now();
        if now < self.active_at + UNREAD_MAX {
            return;
        }
        while let Some(endpoint) = self.deferred.take_due(now) {
            let is_in_view = view.contains(&endpoint);
            if is_in_view && view.is_free(&endpoint) && !self.cache.knows(&endpoint) {
                self.to_read.insert(endpoint);
            }
        }
    }

    /// Reads at most [`SESSIONS_AT_ONCE`] sessions now.
    pub(super) fn read(
        &mut self,
        context: &ReadContext,
        view: &mut TrackedView,
        endpoints: &[EndpointId],
    ) -> Result<(), StoreError> {
        let found = context.store.sessions(endpoints, context.timeout())?;
        let mut missing = Vec::new();
        for (endpoint, raw) in endpoints.iter().zip(found) {
            let Some(raw) = raw else {
                missing.push(endpoint.clone());
                continue;
            };
            let server_ms = context.table.server_ms();
            if self.cache.apply(endpoint, &raw, server_ms, &mut self.changes) {
                self.enter(context, view, endpoint);
            } else {
                view.remove(endpoint);
            }
            let left = |until: u64| {
                let left = server_ms.map(|now| Duration::from_millis(until.saturating_sub(now)));
                left.map_or(PAUSE_AGAIN, |it| it.max(PAUSE_AGAIN))
            };
            let end = self.cache.pause_ends_at(endpoint).map(|it| context.now() + left(it));
            self.pauses.note(endpoint, end);
        }
        self.report_invalid(context);
        self.apply_missing(context, view, missing)
    }

    /// A session that is to be polled was read. Its owner may have announced it before this instance knew of it.
    fn enter(&mut self, context: &ReadContext, view: &mut TrackedView, endpoint: &EndpointId) {
        if view.add(endpoint) {
            let now = context.now();
            self.unknown.found(now);
            self.entered.push((now, endpoint.clone()));
        }
    }

    pub(super) fn take_entered(&mut self) -> Vec<(Moment, EndpointId)> {
        std::mem::take(&mut self.entered)
    }

    /// R6: a store that lost its memory lost the sessions too. The application may put them back until the hold-off ends,
    /// so nobody stops polling before. The epoch is read before a session counts as gone.
    fn apply_missing(
        &mut self,
        context: &ReadContext,
        view: &mut TrackedView,
        missing: Vec<EndpointId>,
    ) -> Result<(), StoreError> {
        let (missing, unknown): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|it| view.contains(it) || context.table.holds(it));
        unknown.iter().for_each(|it| self.cache.forget(it));
        if missing.is_empty() {
            return Ok(());
        }
        let request = context.table.request();
        let reply = context.store.verify(&request.context, &[])?;
        context.table.observe_stamp(&request, &reply);
        if context.table.hold_off().is_some() {
            self.missing_in_hold_off.extend(missing);
            return Ok(());
        }
        for endpoint in missing {
            self.cache.forget(&endpoint);
            view.remove(&endpoint);
            self.changes.gone.push(endpoint);
        }
        Ok(())
    }

    /// Whether the session was read and is to be polled.
    pub(super) fn is_to_be_polled(&self, endpoint: &EndpointId) -> bool {
        self.cache.knows(endpoint) && !self.cache.is_idle(endpoint)
    }

    /// Whether the session was read and is paused or invalid.
    pub(super) fn is_idle(&self, endpoint: &EndpointId) -> bool {
        self.cache.is_idle(endpoint)
    }

    pub(super) fn session(&self, endpoint: &EndpointId) -> Option<&Arc<Session>> {
        self.cache.session(endpoint)
    }

    /// This instance does not poll it any more: the next owner, maybe this instance, reads it anew.
    pub(super) fn forget(&mut self, endpoint: &EndpointId) {
        if !self.cache.is_idle(endpoint) {
            self.cache.forget(endpoint);
        }
    }

    pub(super) fn take_changes(&mut self) -> SessionChanges {
        std::mem::take(&mut self.changes)
    }

    /// Reads again the sessions that this instance polls and the idle sessions, in case a push was missed.
    pub(super) fn read_all_again(&mut self, context: &ReadContext) {
        self.to_read.extend(self.ours_and_idle(context));
    }

    /// Reads some of the same sessions again, in turn.
    pub(super) fn read_some_again(&mut self, context: &ReadContext) {
        if self.read_again.is_empty() {
            self.read_again = self.ours_and_idle(context);
        }
        let rest = self.read_again.len().saturating_sub(AGAIN_MAX);
        self.to_read.extend(self.read_again.split_off(rest));
    }

    fn ours_and_idle(&self, context: &ReadContext) -> Vec<EndpointId> {
        context.table.endpoints().into_iter().chain(self.cache.idle().cloned()).collect()
    }
}
