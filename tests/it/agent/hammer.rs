//! 200 clients of two agents want 16 names: never two holders, never a fence that goes back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use testkit::agent::{Agent, Client, boot_ms, number};
use testkit::process::ms;
use testkit::random::Random;
use testkit::redis::RedisServer;

const CLIENTS: u64 = 200;
const NAMES: u64 = 16;
const FOR: Duration = Duration::from_secs(12);

/// What every holder does its work on.
#[derive(Default)]
struct Work {
    /// The holder inside, and until when it may be.
    inside: Option<(u64, u64)>,
    fence: u64,
    grants: u64,
}

struct Judge(Vec<Mutex<Work>>);

impl Judge {
    /// Enters, if the client may still take itself for the holder.
    fn enter(&self, name: u64, client: u64, held: &str) -> bool {
        let mut work = self.0[name as usize].lock();
        let (now, until, fence) = (boot_ms(), number(held, "until_ms"), number(held, "fence"));
        if now >= until {
            return false;
        }
        if let Some((other, its_until)) = work.inside.filter(|it| it.1 > now) {
            panic!("{client} and {other} hold n{name} at {now}, until {until} and {its_until}");
        }
        assert!(fence > work.fence, "n{name}: {fence} after {}", work.fence);
        (work.inside, work.fence) = (Some((client, until)), fence);
        work.grants += 1;
        true
    }

    fn leave(&self, name: u64, client: u64) {
        let mut work = self.0[name as usize].lock();
        work.inside.take_if(|it| it.0 == client);
    }
}

#[test]
fn two_hundred_clients_of_two_agents_never_hold_a_name_together() {
    let redis = RedisServer::start();
    let agents =
        [Agent::first(&redis, &["--log-level=info"]), Agent::start(&redis, &["--log-level=info"])];
    let judge = Judge((0..NAMES).map(|_| Mutex::default()).collect());
    let (deaths, refusals) = (AtomicU64::new(0), Mutex::new(BTreeMap::<String, u64>::new()));
    let until = Instant::now() + FOR;
    std::thread::scope(|scope| {
        for id in 0..CLIENTS {
            let (agents, judge, deaths, refusals) = (&agents, &judge, &deaths, &refusals);
            scope.spawn(move || {
                let random = Random::new(id);
                let connect = || {
                    let mut client = agents[id as usize % 2].connect();
                    client.ask("SESSION 5000");
                    client
                };
                let mut client: Client = connect();
                while Instant::now() < until {
                    let name = random.below(NAMES);
                    let wait = random.below(3) * 150;
                    let told = client.ask(&format!("ACQUIRE n{name} {wait}"));
                    if !told.starts_with("HELD ") {
                        let word = told.split(' ').next().unwrap().to_owned();
                        *refusals.lock().entry(word).or_default() += 1;
                        continue;
                    }
                    let is_inside = judge.enter(name, id, &told);
                    if random.permille(300) {
                        client.line_within(ms(random.between(1, 20)));
                    }
                    if is_inside {
                        judge.leave(name, id);
                    }
                    if random.permille(50) {
                        client = connect(); // dies with the lease
                        deaths.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let told = client.ask(&format!("RELEASE n{name}"));
                        assert!(told.starts_with("RELEASED ") || told.starts_with("NOTHELD "));
                    }
                }
            });
        }
    });
    let grants: Vec<u64> = judge.0.iter().map(|it| it.lock().grants).collect();
    let total: u64 = grants.iter().sum();
    println!("{total} grants, {deaths:?} deaths of holders, refused: {:?}", refusals.lock());
    assert!(total > 500 && grants.iter().all(|it| *it > 10), "{grants:?}");
    assert!(!refusals.lock().contains_key("ERR"), "{:?}", refusals.lock());
}
