//! What happens to the fleet: chosen by a seed, so that it can be told again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::{INSTANCES, start};
use leasehold::model::InstanceId;
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Hint, Revocation, RevocationReply, Revocations};
use testkit::process::{Instance, Scene, ms};
use testkit::random::Random;

/// The first few are frozen, too, but never end: it is their memory that is watched.
pub(crate) const SPARED: usize = 8;
/// Most instances that may be away at a time.
const AWAY_MAX: usize = 16;

enum Fate {
    Gone,
    Frozen,
}

pub(crate) struct Chaos {
    random: Random,
    fleet: Vec<Option<Instance>>,
    lives: Vec<usize>,
    /// Who is away, and until when.
    away: Vec<(Instant, usize, Fate)>,
    next: Instant,
    counts: BTreeMap<&'static str, usize>,
    /// What was done to whom, and when.
    history: Vec<(Instant, String)>,
    /// What those said that have ended.
    last_words: Vec<(Instant, String)>,
    pub(crate) wrong: Vec<String>,
}

impl Chaos {
    pub(crate) fn new(seed: u64, fleet: Vec<Instance>) -> Self {
        let lives = vec![0; fleet.len()];
        let fleet = fleet.into_iter().map(Some).collect();
        Self {
            random: Random::new(seed),
            fleet,
            lives,
            away: Vec::new(),
            next: Instant::now(),
            counts: BTreeMap::new(),
            history: Vec::new(),
            last_words: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// Brings back who is due, and if it is time, does the next thing.
    pub(crate) fn step(&mut self, scene: &Scene) {
        self.bring_back(scene, Instant::now());
        self.look();
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + ms(200 + self.random.below(1_800));
        match self.random.below(12) {
            10..=11 => self.revoke(scene),
            0..=2 => self.end_one("killed", |it| it.kill9()),
            3..=4 => self.end_one("stopped", |it| _ = it.term()),
            5..=7 => self.freeze(),
            8 => {
                // A host with several instances, or a switch.
                for _ in 0..=self.random.below(5) {
                    self.end_one("killed", |it| it.kill9());
                }
            }
            _ => (0..=self.random.below(5)).for_each(|_| self.freeze()),
        }
    }

    fn victim(&mut self, from: usize) -> Option<usize> {
        let n = from + self.random.below((INSTANCES - from) as u64) as usize;
        let busy = self.away.len() >= AWAY_MAX || self.away.iter().any(|it| it.1 == n);
        (!busy && self.fleet[n].is_some()).then_some(n)
    }

    fn end_one(&mut self, how: &'static str, end: fn(&mut Instance)) {
        let Some(n) = self.victim(SPARED) else { return };
        let mut one = self.fleet[n].take().unwrap();
        end(&mut one);
        if one.says("panicked") {
            self.wrong.push(format!("instance {n}: {:?}", one.lines(&["panicked"])));
        }
        self.last_words.extend(one.timed_lines(&[]));
        let until = Instant::now() + ms(self.random.below(8_000));
        self.away.push((until, n, Fate::Gone));
        self.note(how, n);
    }

    /// Shorter or longer than a lease.
    fn freeze(&mut self) {
        let Some(n) = self.victim(0) else { return };
        self.fleet[n].as_ref().unwrap().freeze();
        let until = Instant::now() + ms(100 + self.random.below(12_000));
        self.away.push((until, n, Fate::Frozen));
        self.note("frozen", n);
    }

    /// A hint that lies: it may be healthy (R16).
    fn revoke(&mut self, scene: &Scene) {
        let Some(n) = self.victim(0) else { return };
        let keys = Keys::new("poll", "session:");
        let store = RedisStore::new(&scene.redis.url(), "the Redis of the lab", keys).unwrap();
        let suspect = InstanceId::new(&self.fleet[n].as_ref().unwrap().id());
        let revocation = Revocation { suspect, hint: Hint::Operator, not_after_us: 0 };
        // Redis may hold off, or the instance may not have said anything about itself yet.
        if let Ok(RevocationReply::Revoked(_)) = store.revoke_instance(&revocation, ms(2_000)) {
            self.note("revoked alive", n);
        }
    }

    fn note(&mut self, how: &'static str, n: usize) {
        *self.counts.entry(how).or_default() += 1;
        self.history.push((Instant::now(), format!("i{n}-{} {how}", self.lives[n])));
    }

    /// All that was done to anybody, and all that was said about `endpoint`, within `span`.
    pub(crate) fn story(&self, endpoint: &str, span: &Range<Instant>) -> Vec<(Instant, String)> {
        let about = format!(" endpoint={endpoint} ");
        let lives = self.fleet.iter().flatten().flat_map(|it| it.timed_lines(&[&about]));
        let dead = self.last_words.iter().filter(|it| it.1.contains(&about)).cloned();
        let mut all: Vec<_> = self.history.iter().cloned().chain(dead).chain(lives).collect();
        all.retain(|it| span.contains(&it.0));
        all.sort();
        all
    }

    fn bring_back(&mut self, scene: &Scene, now: Instant) {
        let away = std::mem::take(&mut self.away);
        let (due, later): (Vec<_>, Vec<_>) = away.into_iter().partition(|it| it.0 <= now);
        self.away = later;
        for (_, n, fate) in due {
            match fate {
                Fate::Frozen => {
                    self.fleet[n].as_ref().unwrap().thaw();
                    self.history.push((now, format!("i{n}-{} thawed", self.lives[n])));
                }
                Fate::Gone => {
                    self.lives[n] += 1;
                    self.fleet[n] = Some(start(scene, n, self.lives[n]));
                    self.note("started", n);
                }
            }
        }
    }

    /// Nobody ends but whom we end.
    fn look(&mut self) {
        for (n, one) in self.fleet.iter_mut().enumerate() {
            if one.as_mut().is_some_and(|it| !it.is_running()) {
                let log = one.take().map(|it| it.log()).unwrap_or_default();
                self.wrong.push(format!("instance {n} ended by itself: {:?}", log.last()));
                self.away.push((Instant::now(), n, Fate::Gone));
            }
        }
    }

    /// Everybody is there again, for good.
    pub(crate) fn end(&mut self, scene: &Scene) {
        let far = Instant::now() + Duration::from_secs(3_600);
        self.bring_back(scene, far);
    }

    /// Everybody ends when told to.
    pub(crate) fn stop(&mut self) {
        for (n, mut one) in self.fleet.drain(..).flatten().enumerate() {
            let status = one.term();
            if !status.success() || one.says("panicked") {
                self.wrong.push(format!("instance {n} ended with {status}"));
            }
        }
    }

    pub(crate) fn done(&self) -> String {
        let done: Vec<String> = self.counts.iter().map(|it| format!("{} {}", it.1, it.0)).collect();
        done.join(", ")
    }
}
