//! What does a poll that waits cost, and does a pool of 4,096 serve endpoints that answer beside 2,000 that wait?
//!
//! One instance. The endpoints that wait are in networks of their own, so that only the share of the slow lane binds (half
//! of the pool). What waits is compared with the same instance at rest: the same leases, the same sessions, hardly a poll.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::bounds::Verdict;
use testkit::limits::raise_open_files;
use testkit::process::{Instance, Scene, eventually};
use testkit::target::{Answer, Door};

use crate::fleet::{DEFAULTS, DELAY, Fleet, put_sessions};
use crate::usage::{Usage, cpu};

const WAITING: usize = 2_000;
/// Those whose CPU is measured.
const FEW: usize = 200;
const ANSWERING: usize = 300;
/// Endpoints that hang of one network.
const NETWORK: usize = 20;
const INTERVAL: Duration = Duration::from_secs(3);
/// As good as never.
const REST: Duration = Duration::from_secs(86_400);
/// Longer than a window of measurement and its preparation.
const TIMEOUT: Duration = Duration::from_secs(45);
const WINDOW: Duration = Duration::from_secs(20);
/// A poller without a job ends after this time …
const IDLE_FOR: Duration = Duration::from_secs(10);
/// … and what the pool may need on top to notice.
const NOTICED: Duration = Duration::from_secs(3);
/// Descriptors that the instance sets aside for a poll, and for everything else.
const OPEN_FILES: u64 = 4 * (WAITING + ANSWERING) as u64 + 1_000;

const RESIDENT_MAX_KB: f64 = 64.0;
const CPU_MAX_PERCENT: f64 = 3.0;

struct Pool {
    fleet: Fleet,
    door: Door,
}

pub(crate) fn pool(verdict: &mut Verdict) {
    let limit = raise_open_files();
    if limit < OPEN_FILES {
        println!(
            "left out: this host allows {limit} open files for a process, and {OPEN_FILES} are needed (ulimit -Hn)"
        );
        return;
    }
    let pool = Pool::start();
    let rest = pool.usage();
    verdict.say(&format!("at rest: {}", rest.text()));
    let cpu_at_rest = pool.cpu_share();
    pool.hang(0..FEW);
    let cpu_of_few = (pool.cpu_share() - cpu_at_rest).max(0.0);
    verdict.say(&format!(
        "{FEW} polls that wait: {cpu_of_few:.2} % of a core (at most {CPU_MAX_PERCENT} %), besides {cpu_at_rest:.2} % at \
         rest; {}",
        pool.usage().text()
    ));
    verdict.hold(cpu_of_few <= CPU_MAX_PERCENT, &format!("{FEW} that wait: {cpu_of_few:.2} %"));
    let first = pool.wave(verdict, rest, "first");
    pool.rest(verdict, rest);
    let second = pool.wave(verdict, rest, "second");
    pool.rest(verdict, rest);
    let bound = first.resident_kb + first.resident_kb / 20 + 1_024;
    let is_flat = second.resident_kb <= bound;
    verdict.hold(is_flat, &format!("second wave: {} KB, first {bound}", second.resident_kb));
    verdict.sound(&pool.fleet.scene.target);
}

impl Pool {
    fn start() -> Self {
        let mut scene = Scene::new(0);
        let door = scene.target.open("0.0.0.0:0");
        scene.endpoints =
            (1..=WAITING).map(waiting).chain((1..=ANSWERING).map(answering)).collect();
        for endpoint in &scene.endpoints {
            scene.target.answer(endpoint, Answer { delay: DELAY, ..Answer::default() });
        }
        let interval = format!("--interval={}ms", INTERVAL.as_millis());
        let timeout = format!("--timeout={}s", TIMEOUT.as_secs());
        let pool = ["--workers=4096", "--light-after=1000", interval.as_str(), timeout.as_str()];
        let args: Vec<&str> = DEFAULTS.into_iter().chain(pool).collect();
        let mut pool = Self { fleet: Fleet::of(scene, Vec::new(), INTERVAL, WAITING), door };
        pool.put(0..WAITING + ANSWERING, REST);
        let instance = pool.fleet.scene.first(&args);
        pool.fleet.instances.push(instance);
        pool.fleet.wait_until_owned();
        // What the start needed has ended, and its pollers have gone.
        pool.fleet.scene.target.observe(IDLE_FOR + NOTICED);
        pool
    }

    /// Endpoints by their place, at their addresses.
    fn put(&self, places: std::ops::Range<usize>, interval: Duration) {
        let port = self.door.address().port();
        let endpoints = self.fleet.scene.endpoints[places.clone()].iter().cloned();
        let at = |place: usize| SocketAddr::from(([127, 1, (place / NETWORK) as u8, 1], port));
        put_sessions(&self.fleet.scene, endpoints.zip(places.map(at)), interval);
    }

    fn instance(&self) -> &Instance {
        &self.fleet.instances[0]
    }

    fn usage(&self) -> Usage {
        Usage::of(self.instance().pid())
    }

    /// Percent of a core.
    fn cpu_share(&self) -> f64 {
        let (before, began) = (cpu(self.instance().pid()), Instant::now());
        self.fleet.scene.target.observe(WINDOW);
        let spent = cpu(self.instance().pid()) - before;
        spent.as_secs_f64() * 100.0 / began.elapsed().as_secs_f64()
    }

    /// Lets these endpoints hang, and waits until each has a poll that waits.
    fn hang(&self, places: std::ops::Range<usize>) {
        let all = places.end;
        for endpoint in &self.fleet.scene.endpoints[places.clone()] {
            self.fleet.scene.target.answer(endpoint, Answer { hang: true, ..Answer::default() });
        }
        self.put(places, INTERVAL);
        let count = || format!("{} of {all} wait", self.waiting());
        eventually(TIMEOUT, "polls that wait", count, || self.waiting() + all / 50 >= all);
    }

    /// Polls that have not ended, of endpoints that hang.
    fn waiting(&self) -> usize {
        let requests = self.fleet.scene.target.requests();
        requests.iter().filter(|it| it.end.is_none() && it.path.starts_with("/w")).count()
    }

    /// All that may hang do, and the others answer on time.
    fn wave(&self, verdict: &mut Verdict, rest: Usage, name: &str) -> Usage {
        self.put(WAITING..WAITING + ANSWERING, INTERVAL);
        self.hang(0..WAITING);
        let (usage, waiting) = (self.usage(), self.waiting());
        let each = (usage.resident_kb - rest.resident_kb) as f64 / waiting as f64;
        verdict.say(&format!(
            "{name} wave: {waiting} polls wait: {}; {each:.1} KB resident for each (at most {RESIDENT_MAX_KB} KB)",
            usage.text()
        ));
        verdict.hold(waiting + WAITING / 20 >= WAITING, &format!("only {waiting} polls wait"));
        verdict.hold(each <= RESIDENT_MAX_KB, &format!("{each:.1} KB for a poll that waits"));
        self.fleet.judge(verdict, INTERVAL * 10, INTERVAL * 11 / 10);
        self.usage()
    }

    /// Nothing is polled any more: what has been waiting times out, and the pollers end.
    fn rest(&self, verdict: &mut Verdict, before: Usage) {
        for endpoint in &self.fleet.scene.endpoints[..WAITING] {
            self.fleet.scene.target.answer(endpoint, Answer::default());
        }
        self.put(0..WAITING + ANSWERING, REST);
        let count = || format!("{} still wait", self.waiting());
        eventually(TIMEOUT * 2, "the end of what waits", count, || self.waiting() == 0);
        self.fleet.scene.target.observe(IDLE_FOR + NOTICED);
        let usage = self.usage();
        let bound = before.threads + 4;
        verdict.say(&format!(
            "{:?} after the last poll: {} (at most {bound} threads)",
            IDLE_FOR + NOTICED,
            usage.text()
        ));
        verdict.hold(usage.threads <= bound, &format!("{} threads at rest", usage.threads));
    }
}

fn waiting(n: usize) -> String {
    format!("w{n}")
}

fn answering(n: usize) -> String {
    format!("a{n}")
}
