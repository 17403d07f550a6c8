//! A fleet of real processes with default settings, what its endpoints saw of it, and what it needs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::bounds::Verdict;
use testkit::process::{Instance, Scene, eventually};
use testkit::target::{Answer, Request};

use crate::usage::Usage;

/// The defaults, which the tests make shorter.
pub(crate) const DEFAULTS: [&str; 8] = [
    "--workers=256",
    "--lease-ttl=30s",
    "--renew-interval=10s",
    "--heartbeat-ttl=30s",
    "--heartbeat-interval=10s",
    "--store-timeout=2s",
    "--timeout=10s",
    "--drain-timeout=10s",
];
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// Endpoints that answer keep at least this share of their polls.
pub(crate) const SHARE_MIN: f64 = 0.95;
/// Until everything is owned, on a machine that is busy.
const OWNED: Duration = Duration::from_secs(60);
/// How far away the endpoints are.
pub(crate) const DELAY: Duration = Duration::from_millis(150);

/// A fleet with default settings, and endpoints of which the first `hanging` hang.
pub(crate) struct Fleet {
    pub(crate) scene: Scene,
    pub(crate) instances: Vec<Instance>,
    interval: Duration,
    hanging: usize,
    pub(crate) args: Vec<String>,
}

impl Fleet {
    pub(crate) fn start(
        endpoints: usize,
        hanging: usize,
        instances: usize,
        interval: Duration,
    ) -> Self {
        let scene = Scene::new(endpoints);
        let answer = Answer { delay: DELAY, ..Answer::default() };
        for (n, endpoint) in scene.endpoints.iter().enumerate() {
            scene.target.answer(endpoint, Answer { hang: n < hanging, ..answer.clone() });
        }
        let interval_arg = format!("--interval={}ms", interval.as_millis());
        let args: Vec<String> =
            DEFAULTS.iter().map(ToString::to_string).chain([interval_arg]).collect();
        let borrowed: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut fleet = vec![scene.first(&borrowed)];
        fleet.extend((1..instances).map(|_| Instance::start(&scene.redis, &borrowed)));
        scene.wait_for_balance(&fleet.iter().collect::<Vec<_>>(), Duration::from_secs(30));
        Self { scene, instances: fleet, interval, hanging, args }
    }

    /// Instances that were started in another way.
    pub(crate) fn of(
        scene: Scene,
        instances: Vec<Instance>,
        interval: Duration,
        hanging: usize,
    ) -> Self {
        Self { scene, instances, interval, hanging, args: Vec::new() }
    }

    pub(crate) fn wait_until_owned(&self) {
        let owned = || self.scene.owners().len();
        let all = self.scene.endpoints.len();
        eventually(OWNED, "leases of all", || owned().to_string(), || owned() == all);
    }

    /// Polls of endpoints that answer, by endpoint, that began in this span.
    pub(crate) fn healthy(&self, from: Instant, to: Instant) -> BTreeMap<String, Vec<Request>> {
        let names = self.scene.endpoints.iter().skip(self.hanging);
        let mut polls: BTreeMap<String, Vec<Request>> =
            names.map(|it| (format!("/{it}"), Vec::new())).collect();
        for request in self.scene.target.requests() {
            if (from..to).contains(&request.start)
                && let Some(polls) = polls.get_mut(&request.path)
            {
                polls.push(request);
            }
        }
        polls
    }

    /// Prints and judges how often endpoints that answer were polled for `span` from now on, and how long the gaps were.
    pub(crate) fn judge(&self, verdict: &mut Verdict, span: Duration, p99_max: Duration) {
        let from = Instant::now();
        self.scene.target.observe(span);
        let polls = self.healthy(from, from + span);
        let gaps = gaps(&polls, from, from + span, self.interval);
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|it| at_quantile(&gaps, it));
        let share = share(&gaps, self.interval);
        verdict.say(&format!(
            "{} endpoints answer, {} hang: {share:.3} of the polls (at least {SHARE_MIN}); gap p50 {p50:.2?}, p99 {p99:.2?} (at \
             most {p99_max:.2?}), most {most:.2?}",
            polls.len(),
            self.hanging
        ));
        verdict.hold(share >= SHARE_MIN, &format!("{share:.3} of the polls"));
        verdict.hold(p99 <= p99_max, &format!("p99 gap {p99:.2?}, at most {p99_max:?}"));
        for instance in &self.instances {
            verdict.say(&Usage::of(instance.pid()).text());
        }
    }
}

/// Stores sessions that are polled at addresses of their own.
pub(crate) fn put_sessions(
    scene: &Scene,
    sessions: impl Iterator<Item = (String, SocketAddr)>,
    interval: Duration,
) {
    let mut pipe = redis::pipe();
    for (id, address) in sessions {
        let mut session = scene.target.session(&id);
        session["address"] = address.to_string().into();
        session["intervalMs"] = (interval.as_millis() as u64).into();
        pipe.cmd("SET").arg(format!("session:{id}")).arg(session.to_string()).ignore();
    }
    pipe.exec(&mut scene.redis.connect().unwrap()).unwrap();
}

/// From each poll to the next. Before the first poll and after the last one what is longer than the interval is a gap, too: an
/// endpoint without polls has one long gap.
pub(crate) fn gaps(
    polls: &BTreeMap<String, Vec<Request>>,
    from: Instant,
    to: Instant,
    interval: Duration,
) -> Vec<Duration> {
    let mut gaps = Vec::new();
    for polls in polls.values() {
        let mut last = from;
        for (n, poll) in polls.iter().enumerate() {
            let gap = poll.start - last;
            gaps.extend((n > 0 || gap > interval).then_some(gap));
            last = poll.start;
        }
        gaps.extend((to - last > interval).then_some(to - last));
    }
    gaps.sort_unstable();
    gaps
}

/// How many of the polls that the interval asks for there were. It is counted by gaps, because a count of the polls in a span
/// depends on where the span cuts endpoints that are polled at the same moment.
pub(crate) fn share(gaps: &[Duration], interval: Duration) -> f64 {
    let sum: Duration = gaps.iter().sum();
    interval.as_secs_f64() * gaps.len() as f64 / sum.as_secs_f64()
}

pub(crate) fn at_quantile(sorted: &[Duration], share: f64) -> Duration {
    let place = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(place).copied().unwrap_or_default()
}
