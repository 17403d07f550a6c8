//! Which leases does this instance check in turn, in case a message was missed? Those for which it is next in line: it would
//! be the next to acquire them. Picks endpoints of the view, and touches nothing else.

use fnv::FnvHashMap;
use std::time::Duration;

use crate::clock::Moment;
use crate::fleet::view::View;
use crate::model::{EndpointId, InstanceId};

/// A walk in a circle over the leases of others that this instance is next in line for.
#[derive(Default)]
pub(super) struct Audit {
    /// Where in the view the walk goes on, and when it got there.
    position: (usize, Moment),
    /// One lease of each owner, to see at every quick check whether the owner still renews.
    samples: FnvHashMap<InstanceId, EndpointId>,
}

/// The leases of one quick check, and where the walk stands once their owners were read.
pub(super) struct AuditPage {
    pub(super) endpoints: Vec<EndpointId>,
    end: (usize, Moment),
}

impl Audit {
    /// The leases whose owners are to be read at `now`: a walk over the whole view takes `period`.
    pub(super) fn page(
        &mut self,
        view: &View,
        me: &InstanceId,
        now: Moment,
        period: Duration,
    ) -> AuditPage {
        let (mut cursor, since) = self.position;
        let share = now.since(since).as_secs_f64() / period.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to a view's size"
        )]
        #[expect(clippy::cast_precision_loss, reason = "a part of the view, rounded up")]
        let count = (view.len() as f64 * share.min(1.0)).ceil() as usize;
        let endpoints = view.next_in_line_for(me, &mut cursor, count);
        for endpoint in &endpoints {
            if let Some(owner) = view.owner(endpoint) {
                self.samples.insert(owner.clone(), endpoint.clone());
            }
        }
        AuditPage { endpoints, end: (cursor, now) }
    }

    /// One lease of each live owner.
    pub(super) fn samples(&mut self, view: &View) -> Vec<EndpointId> {
        self.samples.retain(|owner, it| view.owner(it) == Some(owner) && view.is_live(owner));
        self.samples.values().cloned().collect()
    }

    /// Everything about this page was read.
    pub(super) fn complete(&mut self, page: &AuditPage) {
        self.position = page.end;
    }
}
