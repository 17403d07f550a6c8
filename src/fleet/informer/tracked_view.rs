//! The view of the informer, which remembers whether it changed since the last plan. Touches nothing else.

use std::ops::Deref;

use crate::fleet::view::View;
use crate::model::{EndpointId, InstanceId, Weight};

/// A [`View`] that is read like any other, and changed only here.
#[derive(Default)]
pub(crate) struct TrackedView {
    view: View,
    changed: bool,
    members_changed: bool,
}

impl Deref for TrackedView {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl TrackedView {
    /// Adds an endpoint without an owner; false when the view had it.
    pub(super) fn add(&mut self, endpoint: &EndpointId) -> bool {
        let is_new = self.view.add(endpoint);
        self.changed |= is_new;
        is_new
    }

    pub(super) fn remove(&mut self, endpoint: &EndpointId) {
        self.changed |= self.view.remove(endpoint);
    }

    pub(super) fn set_owner(&mut self, endpoint: &EndpointId, owner: Option<&InstanceId>) {
        self.changed |= self.view.set_owner(endpoint, owner);
    }

    /// Replaces the live instances.
    pub(super) fn set_instances(&mut self, live: &[(InstanceId, Weight)]) {
        let changed = self.view.set_instances(live);
        self.changed |= changed;
        self.members_changed |= changed;
    }

    /// Asks for a new plan of the same view.
    pub(super) fn request_plan(&mut self) {
        self.changed = true;
    }

    /// Whether anything changed since [`Self::take_changed`].
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether a live instance or a weight changed since [`Self::take_changed`].
    pub(crate) fn members_changed(&self) -> bool {
        self.members_changed
    }

    pub(super) fn take_changed(&mut self) -> bool {
        self.members_changed = false;
        std::mem::take(&mut self.changed)
    }
}
