//! What becomes of the commands of `lead` and `once`, for `history --role`, and for hosts that wait for a failure.

use std::time::Duration;

use crate::cli::supervised::End;
use crate::config::Config;
use crate::election::LeaderElection;
use crate::model::{EndpointId, FenceToken, InstanceId, Role};
use crate::store::StoreResult;
use crate::store::admin::runs::{Run, RunNote};
use crate::store::redis::RedisStore;

/// Others run a command again whose end they do not hear of, so it is said more than once.
const ATTEMPTS_MAX: usize = 3;

/// The history of the runs of one role, as one instance writes it.
pub(crate) struct RunLog {
    store: RedisStore,
    role: EndpointId,
    me: InstanceId,
    timeout: Duration,
}

impl RunLog {
    pub(crate) fn new(config: &Config, role: &Role, me: &InstanceId) -> Self {
        let (store, role) = (RedisStore::of_roles(config), role.as_lease().clone());
        Self { store, role, me: me.clone(), timeout: config.store_timeout }
    }

    pub(crate) fn of(config: &Config, role: &Role, election: &LeaderElection) -> Self {
        Self::new(config, role, election.instance_id())
    }

    fn note(&self, event: &'static str, term: Option<FenceToken>) -> RunNote<'_> {
        let (role, instance) = (&self.role, &self.me);
        RunNote { event, role, instance, term, code: None, reason: "", owner: None }
    }

    /// Before the command starts; when that was, by the server's clock.
    pub(crate) fn started(&self, term: FenceToken) -> StoreResult<u64> {
        self.store.note_run(&self.note("started", Some(term)), self.timeout)
    }

    /// While the role is still led: the next leader finds this. Best-effort.
    pub(crate) fn ended(
        &self,
        term: FenceToken,
        started_ms: Option<u64>,
        end: &Result<End, String>,
    ) {
        let (code, reason) = match end {
            Ok(End::Own(it) | End::Signalled(it)) => {
                (Some(it.code), it.error.as_deref().unwrap_or_default())
            }
            Ok(End::Duty) => (None, "the role was lost or given up"),
            Err(why) => (None, why.as_str()),
        };
        let note = RunNote { code, reason, ..self.note("ended", Some(term)) };
        let _told = (0..ATTEMPTS_MAX).find(|_| self.store.note_run(&note, self.timeout).is_ok());
        if let Some(started_ms) = started_ms.filter(|_| code == Some(0)) {
            let _ = self.store.note_success(&self.role, started_ms, self.timeout);
        }
    }

    /// Best-effort.
    pub(crate) fn skipped(&self, leader: &InstanceId) {
        let note = RunNote { owner: Some(leader), ..self.note("skipped", None) };
        let _ = self.store.note_run(&note, self.timeout);
    }

    /// Whether the last run that succeeded began less than `age` ago.
    pub(crate) fn is_recent(&self, age: Duration) -> StoreResult<bool> {
        let ago = self.store.last_success(&self.role, self.timeout)?;
        Ok(ago.is_some_and(|it| it < age))
    }

    /// What became of the attempts since `term`.
    pub(crate) fn since(&self, term: FenceToken) -> StoreResult<Attempts> {
        let runs = self.store.runs_since(&self.role, term, self.timeout)?;
        let n_started = runs.iter().filter(|it| it.event == "started").count();
        let succeeded = runs.iter().any(|it: &Run| it.event == "ended" && it.code == Some(0));
        Ok(Attempts { n_started, succeeded })
    }
}

/// Attempts at one run, on any host.
pub(crate) struct Attempts {
    n_started: usize,
    succeeded: bool,
}

impl Attempts {
    /// Whether another attempt is to be made, of `retry` that may follow the first. Where nobody said that it started, an older
    /// version runs the command and says nothing about its end either.
    pub(crate) fn are_to_go_on(&self, retry: usize) -> bool {
        !self.succeeded && (1..=retry).contains(&self.n_started)
    }
}
