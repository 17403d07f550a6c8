//! Which parts does a role need? Wires state, elector, renewal and expiry of one role, and keeps the roles of a process.
//!
//! No thread starts here. [`Elections`](crate::election::Elections) puts threads around the steps; the in-memory electorate of
//! the tests and the simulator call the same steps.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::election::role_elector::RoleElector;
use crate::election::role_state::RoleState;
use crate::election::rounds;
use crate::election::settings::ElectionSettings;
use crate::lease::expiry::Expiry;
use crate::lease::renewal::Renewal;
use crate::lease::table::OwnershipTable;
use crate::model::{InstanceId, Role};
use crate::store::Store;

/// What all candidates of a process share.
pub struct CandidateContext<'a> {
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
    pub fn assemble(settings: ElectionSettings, context: &CandidateContext<'_>) -> Self {
        let CandidateContext { me, clock, new_fleet, elector, renewal, poke } = context;
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

/// With no role to keep, renewal and expiry look this often whether that has changed.
const IDLE: Duration = Duration::from_millis(25);

/// One role that is kept while it is led.
pub(crate) struct KeptRole {
    pub(crate) role_state: Arc<RoleState>,
    /// Whether this instance stands for the role, or only observes its leader.
    pub(crate) stands: bool,
    renewal: Renewal,
    expiry: Expiry,
}

/// Renews and expires every role of a process. Clones share the roles.
#[derive(Clone)]
pub struct RoleKeeper {
    store: Arc<dyn Store>,
    kept: Arc<Kept>,
}

/// The roles, by name: a process may have thousands.
#[derive(Default)]
struct Kept {
    roles: Mutex<BTreeMap<Role, Arc<KeptRole>>>,
    /// Notified when no role is left.
    emptied: Condvar,
}

impl RoleKeeper {
    /// Renews through `store`. No role yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, kept: Arc::default() }
    }

    /// Keeps a role from now on, and returns its elector; `None` if the role is kept already. A role is kept before it
    /// can be held.
    pub fn keep(&self, parts: RoleParts) -> Option<RoleElector> {
        let RoleParts { role_state, elector, renewal, expiry } = parts;
        let mut roles = self.kept.roles.lock();
        let Entry::Vacant(place) = roles.entry(role_state.role().clone()) else { return None };
        let stands = elector.stands();
        place.insert(Arc::new(KeptRole { role_state, stands, renewal, expiry }));
        Some(elector)
    }

    /// Keeps this role no more.
    pub(crate) fn forget(&self, role_state: &Arc<RoleState>) {
        let mut roles = self.kept.roles.lock();
        if let Entry::Occupied(kept) = roles.entry(role_state.role().clone())
            && Arc::ptr_eq(&kept.get().role_state, role_state)
        {
            kept.remove();
        }
        if roles.is_empty() {
            self.kept.emptied.notify_all();
        }
    }

    pub(crate) fn find(&self, role: &Role) -> Option<Arc<KeptRole>> {
        self.kept.roles.lock().get(role).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<KeptRole>> {
        self.kept.roles.lock().values().cloned().collect()
    }

    /// Waits until no role is kept, at most for the given time; true if none is.
    pub(crate) fn wait_until_empty(&self, longest: Duration) -> bool {
        let mut roles = self.kept.roles.lock();
        if !roles.is_empty() {
            self.kept.emptied.wait_for(&mut roles, longest);
        }
        roles.is_empty()
    }

    /// The step of the thread `role-renewal`: renews what is due; how long to wait for the next.
    pub fn renew(&self) -> Duration {
        let roles = self.all();
        rounds::renew(&*self.store, roles.iter().map(|it| &it.renewal)).unwrap_or(IDLE)
    }

    /// The step of the thread `role-expiry`: ends what is past its deadline; how long to wait for the next.
    pub fn expire(&self) -> Duration {
        self.all().iter().map(|it| it.expiry.step()).min().unwrap_or(IDLE)
    }
}
