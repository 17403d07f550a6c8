//! A fleet of real processes with default settings, what its endpoints saw of it, and what it needs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::bounds::Verdict;
use testkit::process::{Instance, Scene, eventually};
use testkit::target::{Answer, Request};

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
        let wanted = polls.len() as f64 * span.as_secs_f64() / self.interval.as_secs_f64();
        let had: usize = polls.values().map(Vec::len).sum();
        let gaps = gaps(&polls, from, from + span);
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|it| at_quantile(&gaps, it));
        let share = had as f64 / wanted;
        println!(
            "measured: {} endpoints answer, {} hang: {share:.3} of the polls; gap p50 {p50:.2?}, p99 {p99:.2?}, most {most:.2?}",
            polls.len(),
            self.hanging
        );
        verdict.hold(share >= 0.95, &format!("{share:.3} of the polls, 0.95 are wanted"));
        verdict.hold(p99 <= p99_max, &format!("p99 gap {p99:.2?}, at most {p99_max:?}"));
        self.tell_threads();
    }

    fn tell_threads(&self) {
        for instance in &self.instances {
            let status = std::fs::read_to_string(format!("/proc/{}/status", instance.pid()));
            let status = status.unwrap_or_default();
            let line = |name: &str| {
                let line = status.lines().find(|it| it.starts_with(name)).unwrap_or_default();
                line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
            };
            println!("  {} threads, {} resident", line("Threads:"), line("VmRSS:"));
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

/// From each poll to the next, and from the beginning and to the end of the span: an endpoint without polls has one long gap.
pub(crate) fn gaps(
    polls: &BTreeMap<String, Vec<Request>>,
    from: Instant,
    to: Instant,
) -> Vec<Duration> {
    let mut gaps = Vec::new();
    for polls in polls.values() {
        let mut last = None;
        for poll in polls {
            gaps.extend(last.map(|it| poll.start - it));
            last = Some(poll.start);
        }
        if last.is_none() {
            gaps.push(to - from);
        }
    }
    gaps.sort_unstable();
    gaps
}

pub(crate) fn at_quantile(sorted: &[Duration], share: f64) -> Duration {
    let place = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(place).copied().unwrap_or_default()
}
