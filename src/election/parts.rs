//! Wires one role: its state, its elector, its renewal and its expiry, without a thread.
//!
//! [`Elections`](crate::election::Elections) shares threads among the roles of a process. The in-memory electorate of the
//! tests and the simulator call the steps of the same parts.

use std::sync::Arc;

use crossbeam_channel::Sender;

use crate::clock::Clock;
use crate::election::role_elector::RoleElector;
use crate::election::role_state::RoleState;
use crate::election::settings::ElectionSettings;
use crate::lease::expiry::Expiry;
use crate::lease::renewal::Renewal;
use crate::lease::table::OwnershipTable;
use crate::model::InstanceId;
use crate::store::Store;

/// Who stands, and where it asks.
pub struct Standing<'a> {
    /// The instance.
    pub me: &'a InstanceId,
    /// Its clock.
    pub clock: &'a Arc<dyn Clock>,
    /// No leader has ever been elected on this store, says the operator.
    pub new_fleet: bool,
    /// The connection of the elector.
    pub elector: &'a Arc<dyn Store>,
    /// The connection of the renewals: nothing slow is in front of them.
    pub renewal: &'a Arc<dyn Store>,
    /// Wakes the elector.
    pub poke: &'a Sender<()>,
}

/// Everything one role needs, each ready to step.
pub struct RoleParts {
    /// Whether this instance leads.
    pub role_state: Arc<RoleState>,
    /// Decides when to stand and to give up.
    pub elector: RoleElector,
    /// Renews the role.
    pub renewal: Renewal,
    /// Ends it at its deadline.
    pub expiry: Expiry,
}

impl RoleParts {
    /// Wires them for the role of `settings`.
    pub fn assemble(settings: ElectionSettings, standing: &Standing<'_>) -> Self {
        let Standing { me, clock, new_fleet, elector, renewal, poke } = standing;
        let (me, clock) = (InstanceId::clone(me), Arc::clone(clock));
        let table = Arc::new(OwnershipTable::of_role(me, settings.timings(), clock, *new_fleet));
        let state = RoleState::new(settings.role.clone(), Arc::clone(&table), (*poke).clone());
        Self {
            renewal: Renewal::new(Arc::clone(renewal), Arc::clone(&table), Arc::clone(&state)),
            expiry: Expiry::new(table, Arc::clone(&state)),
            elector: RoleElector::new(Arc::clone(&state), Arc::clone(elector), settings),
            role_state: state,
        }
    }
}
