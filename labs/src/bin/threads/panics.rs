//! A daemon whose poller panics in one poll of ten, and whose abort closures panic whenever they run: everything
//! that is held must be polled all the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::config::Config;
use leasehold::thread::stop;
use leasehold::{Daemon, EndpointId, PollPermit, Poller, Revoked, Sample, Session};
use parking_lot::Mutex;

use testkit::cluster::random;
use testkit::redis::RedisServer;

const WORKERS: usize = 64;
const ENDPOINTS: u64 = 128;
/// An endpoint that was not polled for this long counts as not polled.
const LATE: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Panicking {
    polls: AtomicU64,
    panics: AtomicU64,
    aborts: Arc<AtomicU64>,
    last: Mutex<HashMap<EndpointId, Instant>>,
}

impl Poller for Panicking {
    fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
        let aborts = Arc::clone(&self.aborts);
        permit.abort().arm(move || {
            aborts.fetch_add(1, Ordering::Relaxed);
            panic!("deliberately, in an abort closure");
        });
        permit.confirm()?;
        let n = self.polls.fetch_add(1, Ordering::Relaxed);
        self.last.lock().insert(permit.tenure().endpoint.clone(), Instant::now());
        if n % 10 == 3 {
            self.panics.fetch_add(1, Ordering::Relaxed);
            panic!("deliberately, in a poll");
        }
        if n.is_multiple_of(7) {
            std::thread::sleep(Duration::from_millis(50)); // something to abort
        }
        permit.abort().disarm();
        let body = Vec::new();
        Ok(Sample { ok: true, status: None, error: None, body, duration: Duration::ZERO })
    }
}

pub(crate) fn run(redis: &RedisServer, time: Duration) -> Vec<String> {
    std::panic::set_hook(Box::new(|_| ())); // a thousand of them say nothing
    for n in 0..ENDPOINTS {
        let json = format!(r#"{{"id":"e{n}","address":"127.0.0.1:1"}}"#);
        redis.cli(&["SET", &format!("session:e{n}"), &json]);
    }
    let config = Config {
        workers: WORKERS,
        interval: Duration::from_millis(100),
        light_after: 1_000_000,
        ..crate::config(redis)
    };
    let config = config.checked().unwrap();
    let poller = Arc::new(Panicking::default());
    let (_running, until) = stop();
    let same: Arc<dyn Poller> = Arc::<Panicking>::clone(&poller);
    let daemon = Daemon::start_redis(&config, same, &until).unwrap();
    let (began, mut random) = (Instant::now(), random(1));
    while began.elapsed() < time {
        // What runs under it is aborted.
        redis.cli(&["SET", &format!("poll:lease:e{}", random(ENDPOINTS)), "a-thief", "PX", "50"]);
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(LATE);
    let now = Instant::now();
    let last = poller.last.lock();
    let late = (0..ENDPOINTS).filter(|n| {
        let name = EndpointId::parse(&format!("e{n}")).unwrap();
        last.get(&name).is_none_or(|it| now.duration_since(*it) > LATE)
    });
    let (late, held) = (late.count(), daemon.table().len());
    drop(last);
    let count = |it: &AtomicU64| it.load(Ordering::Relaxed);
    let (polls, panics, aborts) =
        (count(&poller.polls), count(&poller.panics), count(&poller.aborts));
    println!(
        "  {polls} polls, {panics} of them panicked, {aborts} abort closures panicked; {held} \
         leases are held, {late} of {ENDPOINTS} endpoints were not polled for {LATE:?}"
    );
    let mut wrong = Vec::new();
    if late > 0 {
        wrong.push(format!("{late} endpoints are not polled, and {held} leases are held"));
    }
    if aborts == 0 || panics == 0 {
        wrong.push("nothing panicked".into());
    }
    let _ = std::panic::take_hook();
    daemon.stop();
    wrong
}
