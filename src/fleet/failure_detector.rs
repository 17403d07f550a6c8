//! Which instance is dead? Watches a few other instances, and revokes one that shows no sign of life (R16).
//!
//! A hint may be wrong. R15 and R16 keep every revocation safe, so this file decides only how quick and how careful the fleet is:
//! each instance is watched by the `WATCHERS` instances that are next in line for it, and only while the calls of the watcher
//! succeed without a gap, because a Redis that hangs makes every instance look dead.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::event::Event;
use crate::fleet::live_instances::LiveInstances;
use crate::fleet::suspicion::{Patience, Suspicion};
use crate::lease::report::Reporter;
use crate::lease::table::OwnershipTable;
use crate::model::{Epoch, InstanceId, affinity, fnv1a};
use crate::store::{BATCH_MAX, Hint, Revocation, RevocationReply, SignsOfLife, Store, StoreResult};

/// How many instances watch each instance: all of them may die together with it.
const WATCHERS: usize = 3;
/// Looks in the time after which silence is suspicious.
const LOOKS: u32 = 20;
/// After a gap of so many looks an observation begins anew.
const LOOKS_MISSED: u32 = 5;
/// A hint is checked again this soon.
const CHECK_AGAIN: Duration = Duration::from_millis(50);
/// A wait while nothing can be watched.
const IDLE: Duration = Duration::from_secs(1);
/// How soon an instance that could not be revoked is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Why an instance is spared when `REVOCATIONS_PER_MINUTE` were revoked.
const LIMIT: &str = "the fleet has revoked as many instances as it may in a minute";
/// How often the same refusal is reported.
const REPORT_AGAIN: Duration = Duration::from_secs(60);

/// The thread `detect`: wakes 20 times in `--suspect-after`.
pub struct FailureDetector {
    store: Arc<dyn Store>,
    table: Arc<OwnershipTable>,
    reporter: Reporter,
    live: Arc<LiveInstances>,
    suspect_after: Duration,
    watched: Watched,
    /// When the last look that was answered was asked for, and in which epoch.
    last_look: Option<(Moment, Epoch)>,
    /// When a suspect that could not be revoked may be reported again.
    report_again_at: Moment,
}

/// The instances that this one watches.
#[derive(Default)]
struct Watched {
    /// Of these live instances.
    among: Arc<Vec<InstanceId>>,
    /// Each with the rank of this instance among its watchers, and what was seen of it.
    suspicions: BTreeMap<InstanceId, (u32, Suspicion)>,
}

impl Watched {
    /// Chooses whom to watch when other instances are alive. What was seen of an instance is kept.
    fn follow(&mut self, live: &Arc<Vec<InstanceId>>, me: &InstanceId) {
        if Arc::ptr_eq(&self.among, live) || self.among == *live {
            return;
        }
        let mut before = std::mem::take(&mut self.suspicions);
        self.among = Arc::clone(live);
        for suspect in live.iter().filter(|it| *it != me) {
            if let Some(rank) = rank(me, suspect, live) {
                let seen = before.remove(suspect).map(|it| it.1).unwrap_or_default();
                self.suspicions.insert(suspect.clone(), (rank, seen));
            }
        }
    }

    fn restart_all(&mut self) {
        self.suspicions.values_mut().for_each(|it| it.1.restart());
    }
}

/// The place of `me` among the watchers of `suspect`: the live instances in the order in which they would own an endpoint of its
/// name. `None` for an instance that does not watch it.
fn rank(me: &InstanceId, suspect: &InstanceId, live: &[InstanceId]) -> Option<u32> {
    let hash = fnv1a(suspect.as_str());
    let key = |it: &InstanceId| Reverse((affinity(fnv1a(it.as_str()), hash), it.clone()));
    let mine = key(me);
    let before = live.iter().filter(|it| *it != suspect && *it != me && key(it) < mine).count();
    u32::try_from(before).ok().filter(|_| before < WATCHERS && live.contains(me))
}

impl FailureDetector {
    /// Suspects an instance of `live` that shows no sign of life for `suspect_after`; zero: none.
    pub fn new(
        store: Arc<dyn Store>,
        table: Arc<OwnershipTable>,
        reporter: &Reporter,
        live: Arc<LiveInstances>,
        suspect_after: Duration,
    ) -> Self {
        let (reporter, watched) = (reporter.clone(), Watched::default());
        let (last_look, report_again_at) = (None, Moment::MIN);
        Self { store, table, reporter, live, suspect_after, watched, last_look, report_again_at }
    }

    /// Looks once. Returns how long to wait for the next look.
    pub fn step(&mut self) -> Duration {
        if self.table.verified_for().is_none() {
            return IDLE; // `--suspect-after 0`
        }
        self.watched.follow(&self.live.get(), self.table.instance());
        let is_able = self.table.is_beating() && self.table.hold_off().is_none();
        if !is_able || self.watched.suspicions.is_empty() {
            self.last_look = None;
            return (self.suspect_after / LOOKS).min(IDLE);
        }
        let Some(hints) = self.look() else { return self.suspect_after / LOOKS };
        let is_doubtful = hints.iter().any(|it| it.1.is_none());
        for (suspect, hint) in hints {
            // A store that does not answer about one is not asked about the next.
            if hint.is_some_and(|it| self.revoke(&suspect, it).is_err()) {
                break;
            }
        }
        let usual = self.suspect_after / LOOKS;
        if is_doubtful { CHECK_AGAIN.min(usual) } else { usual }
    }

    /// Reads the signs of life of all that are watched. Returns each that gives a hint: `None` if for the first time. `None` for
    /// all if the store did not answer: then what was seen before does not count any more.
    fn look(&mut self) -> Option<Vec<(InstanceId, Option<Hint>)>> {
        let asked_at = self.table.now();
        let longest =
            (self.suspect_after / LOOKS * LOOKS_MISSED).min(self.table.timings().store_timeout);
        let signs = self.read(longest);
        let (now, epoch) = (self.table.now(), self.table.epoch());
        let last = self.last_look.replace((asked_at, epoch));
        let is_gapless = last.is_some_and(|it| {
            it.1 == epoch && now.since(it.0) <= self.suspect_after / LOOKS * LOOKS_MISSED
        });
        if !is_gapless {
            self.watched.restart_all();
        }
        let Some(signs) = signs else {
            self.watched.restart_all();
            self.last_look = None;
            return None;
        };
        let mut hints = Vec::new();
        let watched = self.watched.suspicions.iter_mut();
        for ((suspect, (rank, suspicion)), signs) in watched.zip(&signs) {
            let patience = Patience::of(*rank, self.suspect_after);
            let hint = suspicion.observe(signs, asked_at, now, patience);
            if hint.is_some() || suspicion.is_doubted() {
                hints.push((suspect.clone(), hint));
            }
        }
        Some(hints)
    }

    fn read(&self, timeout: Duration) -> Option<Vec<SignsOfLife>> {
        let suspects: Vec<InstanceId> = self.watched.suspicions.keys().cloned().collect();
        let mut signs = Vec::with_capacity(suspects.len());
        for batch in suspects.chunks(BATCH_MAX) {
            signs.extend(self.store.signs_of_life(batch, timeout).ok()?);
        }
        Some(signs)
    }

    /// Revokes `suspect`, if the store finds that the hint still holds.
    fn revoke(&mut self, suspect: &InstanceId, hint: Hint) -> StoreResult<()> {
        let context = self.table.request().context;
        let not_after_us = context.not_after_us;
        let revocation = Revocation { suspect: suspect.clone(), hint, not_after_us };
        let reply = self.store.revoke_instance(&revocation, context.timeout);
        let now = self.table.now();
        let seen = self.watched.suspicions.get_mut(suspect).map(|it| &mut it.1);
        let spared = match &reply {
            Ok(RevocationReply::Limit) => LIMIT.to_owned(),
            Err(error) => error.to_string(),
            Ok(reply) => {
                seen.into_iter().for_each(|it| *it = Suspicion::default());
                if let RevocationReply::Revoked(_) = reply {
                    let event = Event::InstanceRevoked { other: suspect, reason: hint.as_str() };
                    self.reporter.report(&event);
                }
                return Ok(());
            }
        };
        // The suspicion stays, for another attempt.
        seen.into_iter().for_each(|it| it.spare(now + TRY_AGAIN));
        if now >= self.report_again_at {
            self.report_again_at = now + REPORT_AGAIN;
            self.reporter.report(&Event::InstanceSpared { other: suspect, reason: &spared });
        }
        reply.map(drop)
    }
}
