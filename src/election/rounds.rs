//! How do all roles of a process share their requests? One round pipelines the script calls of all roles to the store.
//!
//! Each role has a TTL of its own, and so a script call of its own. The calls of a round are written and read together, so a
//! round costs a few round trips however many roles there are, and waits once for a store that does not answer.

use std::collections::VecDeque;
use std::time::Duration;

use crate::election::role_elector::RoleElector;
use crate::election::role_elector::attempt::Next;
use crate::lease::renewal::{Renewal, TOO_LATE_PAUSE};
use crate::lease::table::PendingRequest;
use crate::model::{EndpointId, FenceToken, Tenure};
use crate::store::{
    BATCH_MAX, Fault, PeerMessage, RenewItem, RequestContext, StampedResult, Store, StoreError,
    Verify,
};

/// Most attempts when the epoch changes during a request.
const ATTEMPTS_MAX: usize = 3;
/// Timeout of a release when the store did not answer the last request: a stop must not wait for several store timeouts.
const HURRIED: Duration = Duration::from_millis(500);
/// Renewals of several roles are at least this far apart, so that many roles do not cost a round trip each.
const GATHER: Duration = Duration::from_millis(20);
/// The wait when there is no candidate.
const IDLE: Duration = Duration::from_secs(1);

/// The outcome of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// How long to wait for the next one.
    pub(crate) wait: Duration,
    /// The store did not answer the last request.
    pub(crate) is_away: bool,
}

/// Releases, reads, requests and acquires for all of these roles. `was_away`: the store did not answer in the round before.
pub(crate) fn elect<'a>(
    store: &dyn Store,
    candidates: impl IntoIterator<Item = &'a mut RoleElector>,
    was_away: bool,
) -> Round {
    let mut all: Vec<&mut RoleElector> = candidates.into_iter().collect();
    let mut is_away = give_back(store, all.iter_mut().map(|it| &mut **it), was_away);
    if is_away != Some(true) {
        is_away = look(store, &mut all).or(is_away);
    }
    let wait = all.iter_mut().map(|it| it.wait()).min().unwrap_or(IDLE);
    Round { wait, is_away: is_away.unwrap_or(was_away) }
}

/// R14: names the timing of each role, or is refused it, and learns the epoch. Grants nothing. An answer for each elector.
pub(crate) fn introduce(
    store: &dyn Store,
    electors: &[&RoleElector],
) -> Vec<Result<(), StoreError>> {
    let standing: Vec<&RoleElector> = electors.iter().copied().filter(|it| it.stands()).collect();
    let mut replies: VecDeque<Result<(), StoreError>> = match learn_time(store, &standing) {
        Ok(()) => standing
            .chunk_by(|a, b| a.timeout() == b.timeout())
            .flat_map(|it| it.chunks(BATCH_MAX))
            .flat_map(|it| name_timing(store, it))
            .collect(),
        Err(error) => standing.iter().map(|_| Err(error.clone())).collect(),
    };
    let reply = |it: &&RoleElector| match it.stands() {
        true => replies.pop_front().unwrap_or(Ok(())),
        false => Ok(()),
    };
    electors.iter().map(reply).collect()
}

/// R4: reads the server's clock once for all.
fn learn_time(store: &dyn Store, electors: &[&RoleElector]) -> Result<(), StoreError> {
    let Some(first) = electors.first() else { return Ok(()) };
    let asked_at = first.role_state().table().now();
    let server_us = store.time(first.timeout())?;
    electors.iter().for_each(|it| it.role_state().table().learn_time(asked_at, server_us));
    Ok(())
}

fn name_timing(store: &dyn Store, electors: &[&RoleElector]) -> Vec<Result<(), StoreError>> {
    let requests: Vec<PendingRequest> =
        electors.iter().map(|it| it.role_state().table().request()).collect();
    let nothing = |it: &RoleElector| Tenure::new(it.role().clone(), FenceToken(0));
    let asked: Vec<(RequestContext, Tenure)> =
        electors.iter().zip(&requests).map(|(it, r)| (r.context.clone(), nothing(it))).collect();
    let observe = |((elector, request), reply): (
        (&&RoleElector, &PendingRequest),
        StampedResult<Vec<Verify>>,
    )| {
        elector.role_state().table().observe_stamp(request, &reply?);
        Ok(())
    };
    electors.iter().zip(&requests).zip(store.verify_roles(&asked)).map(observe).collect()
}

/// Gives back, together, every role that was given up and whose work has ended. Whether the store did not
/// answer; `None` when there was nothing to ask.
pub(crate) fn give_back<'a>(
    store: &dyn Store,
    candidates: impl IntoIterator<Item = &'a mut RoleElector>,
    was_away: bool,
) -> Option<bool> {
    let (mut these, mut freed): (
        Vec<&mut RoleElector>,
        Vec<(RequestContext, Tenure, PeerMessage)>,
    ) = candidates
        .into_iter()
        .filter_map(|it| {
            let freed = it.let_go()?;
            Some((it, freed))
        })
        .unzip();
    let longest = freed.iter().map(|it| it.0.timeout).max()?;
    let timeout = if was_away { longest.min(HURRIED) } else { longest };
    freed.iter_mut().for_each(|it| it.0.timeout = timeout);
    let mut silence = None;
    for (these, freed) in these.chunks_mut(BATCH_MAX).zip(freed.chunks(BATCH_MAX)) {
        // A store that does not answer is waited for once, however many roles there are.
        let failure = silence.take().or_else(|| store.release_roles(freed).err());
        these.iter_mut().for_each(|it| it.given_back(failure.as_ref()));
        silence = failure.filter(is_silence);
    }
    Some(silence.is_some())
}

fn is_silence(error: &StoreError) -> bool {
    error.fault == Fault::Unreachable
}

/// Looks at every role whose turn it is, and does what follows. Whether the store did not answer; `None` when there was
/// nothing to ask.
fn look(store: &dyn Store, all: &mut [&mut RoleElector]) -> Option<bool> {
    let due: Vec<usize> = (0..all.len()).filter(|&it| all[it].is_due()).collect();
    let mut silence: Option<(Duration, StoreError)> = None;
    for (timeout, batch) in batches(&due, |&it| all[it].timeout()) {
        // A store that did not answer within this time is not waited for again, however many roles there are.
        match &silence {
            Some((waited, error)) if *waited == timeout => {
                batch.iter().for_each(|&&it| all[it].could_not(error.clone()));
            }
            _ => silence = look_at(store, all, &batch, timeout).map(|error| (timeout, error)),
        }
    }
    (!due.is_empty()).then_some(silence.is_some())
}

/// The error, if the store did not answer.
fn look_at(
    store: &dyn Store,
    all: &mut [&mut RoleElector],
    batch: &[&usize],
    timeout: Duration,
) -> Option<StoreError> {
    let roles: Vec<EndpointId> = batch.iter().map(|&&it| all[it].role().clone()).collect();
    let (mut messages, mut standing) = (Vec::new(), Vec::new());
    match store.role_statuses(&roles, timeout) {
        Ok(statuses) => {
            for (&&at, status) in batch.iter().zip(statuses) {
                match all[at].looked(status) {
                    Next::Wait => (),
                    Next::AskLeader(message) => messages.push(message),
                    Next::Stand => standing.push(at),
                }
            }
        }
        Err(error) => {
            batch.iter().for_each(|&&it| all[it].could_not(error.clone()));
            return Some(error).filter(is_silence);
        }
    }
    if !messages.is_empty() {
        // A lost message is sent again after a later look.
        let _ = store.wake(&messages, timeout);
    }
    stand(store, all, standing)
}

/// Asks for each of these roles, and again under the new epoch if that has changed under the question (R5). The error, if the
/// store did not answer.
fn stand(
    store: &dyn Store,
    all: &mut [&mut RoleElector],
    mut standing: Vec<usize>,
) -> Option<StoreError> {
    let mut silence = None;
    for _ in 0..ATTEMPTS_MAX {
        let mut questions = Vec::with_capacity(standing.len());
        for at in standing {
            match all[at].request() {
                Ok(request) => questions.push((at, request)),
                Err(error) => all[at].could_not_stand(error),
            }
        }
        if questions.is_empty() {
            return silence;
        }
        let asked: Vec<(RequestContext, EndpointId)> = questions
            .iter()
            .map(|(at, it)| (it.context.clone(), all[*at].role().clone()))
            .collect();
        let replies = store.acquire_roles(&asked);
        standing = Vec::new();
        for ((at, request), reply) in questions.iter().zip(replies) {
            silence = silence.or_else(|| reply.as_ref().err().cloned().filter(is_silence));
            if all[*at].attempted(request, reply) {
                standing.push(*at);
            }
        }
    }
    standing.iter().for_each(|&it| all[it].look_soon());
    silence
}

/// Renews the roles that are due, and reports the outcome; how long to wait for the next.
pub(crate) fn renew<'a>(
    store: &dyn Store,
    renewals: impl IntoIterator<Item = &'a Renewal>,
) -> Option<Duration> {
    let all: Vec<&Renewal> = renewals.into_iter().collect();
    let due: Vec<(&Renewal, PendingRequest, Vec<RenewItem>)> = all
        .iter()
        .filter_map(|it| it.due().map(|(request, items)| (*it, request, items)))
        .collect();
    let is_idle = due.is_empty();
    // A role with less time left than a store timeout must not shorten the timeout of the others (R4).
    let group = |it: &(&Renewal, PendingRequest, Vec<RenewItem>)| {
        let (timeout, usual) = (it.1.context.timeout, it.0.store_timeout());
        if timeout < usual { Duration::ZERO } else { usual }
    };
    for (_, batch) in batches(&due, group) {
        let asked: Vec<(RequestContext, Vec<RenewItem>)> =
            batch.iter().map(|it| (it.1.context.clone(), it.2.clone())).collect();
        for ((renewal, request, items), reply) in batch.into_iter().zip(store.renew_roles(&asked)) {
            renewal.answered(request, items, reply);
        }
    }
    // Roles that are due shortly after one another are renewed together.
    let least = match all.len() {
        0 | 1 if is_idle => TOO_LATE_PAUSE,
        0 | 1 => Duration::ZERO,
        _ => GATHER,
    };
    all.iter().map(|it| it.wait()).min().map(|it| it.max(least))
}

/// Those that are waited for equally long, the shortest first, at most [`BATCH_MAX`] in each.
fn batches<T>(items: &[T], timeout: impl Fn(&T) -> Duration) -> Vec<(Duration, Vec<&T>)> {
    let mut sorted: Vec<(Duration, &T)> = items.iter().map(|it| (timeout(it), it)).collect();
    sorted.sort_by_key(|it| it.0);
    let same = sorted.chunk_by(|a, b| a.0 == b.0).flat_map(|it| it.chunks(BATCH_MAX));
    same.map(|it| (it[0].0, it.iter().map(|it| it.1).collect())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_channel::bounded;

    use super::*;
    use crate::clock::ManualClock;
    use crate::config::Config;
    use crate::election::role_state::RoleState;
    use crate::lease::table::OwnershipTable;
    use crate::model::{InstanceId, Role};
    use crate::store::memory::{MemoryServer, MemoryStore, Mishap};

    /// More than two batches.
    const N_ROLES: usize = 2 * BATCH_MAX + 1;

    struct Rig {
        server: Arc<MemoryServer>,
        store: Arc<MemoryStore>,
        electors: Vec<RoleElector>,
    }

    impl Rig {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::at(10_000_000_000_000));
            let server = MemoryServer::of_roles(&clock);
            let store = Arc::new(MemoryStore::new(&server));
            let (poke, _) = bounded(1);
            let elector = |n: usize| {
                let role = Role::parse(&format!("r{n}")).unwrap();
                let settings = Config::default().election_settings(role.clone());
                let (me, clock) = (InstanceId::new("a"), Arc::<ManualClock>::clone(&clock));
                let table = OwnershipTable::of_role(me, settings.timings(), clock, true);
                let role_state = RoleState::new(role, Arc::new(table), poke.clone());
                RoleElector::new(role_state, Arc::<MemoryStore>::clone(&store), settings)
            };
            let electors = (0..N_ROLES).map(elector).collect();
            Self { server, store, electors }
        }

        /// One round; how often it sent each of these.
        fn round(&mut self, ops: &[&str]) -> (bool, Vec<usize>) {
            let before = self.server.journal().len();
            let round = elect(&*self.store, &mut self.electors, false);
            (round.is_away, ops.iter().map(|op| self.sent(before, op)).collect())
        }

        fn sent(&self, since: usize, op: &str) -> usize {
            self.server.journal()[since..].iter().filter(|it| **it == op).count()
        }

        fn n_led(&self) -> usize {
            self.electors.iter().filter(|it| it.role_state().is_leader()).count()
        }
    }

    #[test]
    fn many_roles_are_introduced_by_one_reading_of_the_clock_and_in_batches() {
        let rig = Rig::new();
        let all: Vec<&RoleElector> = rig.electors.iter().collect();
        let answers = introduce(&*rig.store, &all);
        assert!(answers.len() == N_ROLES && answers.iter().all(Result::is_ok));
        assert_eq!([rig.sent(0, "time"), rig.sent(0, "verify")], [1, 3]);
    }

    #[test]
    fn many_roles_are_read_and_acquired_in_batches() {
        let mut rig = Rig::new();
        introduce(&*rig.store, &rig.electors.iter().collect::<Vec<_>>());
        assert_eq!(rig.round(&["role_statuses", "acquire"]), (false, vec![3, 3]));
        assert_eq!(rig.n_led(), N_ROLES);
    }

    /// Else a stop would wait a store timeout for each batch.
    #[test]
    fn a_store_that_does_not_answer_is_waited_for_once_a_round() {
        for op in ["role_statuses", "acquire"] {
            let mut rig = Rig::new();
            rig.store.plan(op, Mishap::LoseReply);
            assert_eq!(rig.round(&[op]), (true, vec![1]), "{op}");
            assert_eq!(rig.n_led(), 0);
        }
        let mut rig = Rig::new();
        rig.round(&[]);
        rig.electors.iter().for_each(|it| it.role_state().stop());
        rig.store.plan("release", Mishap::LoseReply);
        assert_eq!(rig.round(&["release", "role_statuses"]), (true, vec![1, 0]));
        let known = rig.electors.iter().filter(|it| it.role_state().is_given_back()).count();
        assert_eq!(known, 0, "not all releases were answered, and some were not sent");
    }
}
