//! How long the endpoints of a killed instance are without a poll.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::measure::{Measured, Stalls};
use crate::process::{Instance, SOON, Scene, eventually, ms};
use crate::target::Request;

/// What a takeover may cost beyond the TTL, from the crash to the first poll.
const BEYOND: Duration = ms(500);

/// The first poll of each path since `since` by anybody but `dead`.
pub fn first_polls(requests: &[Request], dead: &str, since: Instant) -> BTreeMap<String, Instant> {
    let later = requests.iter().rev().take_while(|it| it.start > since);
    later.filter(|it| it.instance != dead).map(|it| (it.path.clone(), it.start)).collect()
}

/// How long after the crash each endpoint of a dead instance was polled, and after it became free.
pub struct Takeovers {
    pub crash: Measured,
    free: Measured,
}

impl Takeovers {
    pub fn new(what: &str) -> Self {
        let measured = |from: &str| Measured::new(&format!("{what}, {from} to next poll"));
        Self { crash: measured("crash"), free: measured("expiry of lease or heartbeat") }
    }

    /// SIGKILL right after a heartbeat, when there is the most to wait for.
    #[track_caller]
    pub fn kill(&mut self, scene: &Scene, dead: &mut Instance, ttl: Duration, stalls: &Stalls) {
        let left = |key: String| ms(scene.redis.cli(&["PTTL", &key]).parse().unwrap_or(0));
        let beat = || left(format!("poll:node:{}", dead.id()));
        eventually(ttl, "a heartbeat", || format!("{:?}", beat()), || beat() + ms(60) >= ttl);
        let orphans = scene.owned_by(dead);
        let killed_at = Instant::now();
        dead.kill9();
        let dead = dead.id();
        let ends = |key: String| Instant::now() + left(key);
        let dies_at = ends(format!("poll:node:{dead}"));
        let free_at: Vec<Instant> =
            orphans.iter().map(|it| ends(format!("poll:lease:{it}")).min(dies_at)).collect();
        scene.target.wait_until(ttl + SOON, "takeover of every endpoint", |requests| {
            let polled = first_polls(requests, &dead, killed_at);
            orphans.iter().all(|it| polled.contains_key(&format!("/{it}")))
        });
        let polled = first_polls(&scene.target.requests(), &dead, killed_at);
        for (endpoint, free_at) in orphans.iter().zip(free_at) {
            let at = polled[&format!("/{endpoint}")];
            // While everybody has to wait, it does not matter whether the machine runs.
            let stalled = stalls.within(free_at..at);
            self.crash.add(at - killed_at, stalled, endpoint.clone());
            let since_free = at.saturating_duration_since(free_at);
            self.free.add(since_free, stalled, endpoint.clone());
        }
    }

    #[track_caller]
    pub fn assert_in_time(&self, ttl: Duration) {
        self.free.say();
        self.crash.assert_within(ttl + BEYOND);
    }
}
