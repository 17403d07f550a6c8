//! Thousands of leases in one call: an answer for each, in a few round trips.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, ManualClock};
use leasehold::config::{Config, RedisUrl};
use leasehold::lease::keeper::Connections;
use leasehold::model::InstanceId;
use leasehold::store::Store;
use leasehold::store::memory::{MemoryServer, MemoryStore};
use leasehold::{Acquired, Lease, LeaseError, LeaseManager, Released};

use testkit::hooked::{Hooked, Stage};
use testkit::proxy::Proxy;
use testkit::redis::RedisServer;

/// For what takes a fraction of it in a build without optimizations, beside other tests.
const LIMIT: Duration = Duration::from_secs(10);
const MANY: usize = 10_000;

fn config() -> Config {
    Config {
        lease_ttl: Duration::from_secs(60),
        heartbeat_ttl: Duration::from_secs(60),
        new_fleet: true,
        ..Config::default()
    }
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|it| format!("name-{it}")).collect()
}

fn timed<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let began = BootClock.now();
    let told = act();
    let took = BootClock.now().since(began);
    println!("{what}: {took:?}");
    assert!(took < LIMIT, "{what} took {took:?}");
    told
}

/// One after the other they would take 100 s each way.
#[test]
fn ten_thousand_names_take_a_few_round_trips() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port());
    let near = Config { redis: RedisUrl::parse(&redis.url()).unwrap(), ..config() };
    let far = Config { redis: RedisUrl::parse(&proxy.url()).unwrap(), ..config() };
    let [near, far] = [near, far].map(|it| LeaseManager::start(&it.checked().unwrap()).unwrap());
    proxy.lie_far_away(Duration::from_millis(5));
    let names = names(MANY);
    let told = timed("acquire", || far.try_acquire_many(&names));
    let leases: Vec<Lease> = told.into_iter().filter_map(|it| it.unwrap().held()).collect();
    assert!(leases.iter().map(Lease::name).eq(names.iter().map(String::as_str)), "in their order");
    assert!(leases.iter().all(Lease::holds));
    let theirs = near.try_acquire_many(&names[..1_000]);
    let is_far = |it: &Acquired| matches!(it, Acquired::HeldBy(it) if it == far.instance_id());
    assert!(theirs.iter().all(|it| is_far(it.as_ref().unwrap())));
    let owners = timed("preferred owners", || far.preferred_owners(&names));
    for n in (0..MANY).step_by(997) {
        let one = near.preferred_owner(&names[n]).unwrap();
        assert_eq!(owners[n].as_ref().unwrap(), &one);
    }
    let released = timed("release", || far.release_many(leases));
    assert!(released.iter().all(|it| *it.as_ref().unwrap() == Released::GivenBack));
    assert!(far.owned().is_empty() && redis.cli(&["KEYS", "poll:lease:*"]).trim().is_empty());
}

#[test]
fn each_name_of_a_batch_has_its_own_answer_and_one_that_fails_spoils_no_other() {
    let redis = RedisServer::start();
    let config = || Config { redis: RedisUrl::parse(&redis.url()).unwrap(), ..config() };
    let (a, b) = (
        LeaseManager::start(&config().checked().unwrap()).unwrap(),
        LeaseManager::start(&config().checked().unwrap()).unwrap(),
    );
    let _theirs = b.try_acquire("theirs").unwrap().held().unwrap();
    let mine = a.try_acquire("mine").unwrap().held().unwrap();
    redis.cli(&["LPUSH", "poll:lease:spoilt", "1"]);
    let told = a.try_acquire_many(["free", "a b", "theirs", "spoilt", "mine", "free", "last"]);
    let said: Vec<String> = told
        .iter()
        .map(|it| match it {
            Ok(Acquired::Held(it)) => format!("held {}", it.name()),
            Ok(Acquired::HeldBy(it)) if it == b.instance_id() => "b".into(),
            Ok(other) => other.to_string(),
            Err(LeaseError::Name { name, .. }) => format!("no name {name}"),
            Err(LeaseError::Store(error)) => format!("failed {}", error.target),
            Err(other) => other.to_string(),
        })
        .collect();
    let expected =
        ["held free", "no name a b", "b", "failed spoilt", "held mine", "held free", "held last"];
    assert_eq!(said, expected);
    let mut leases: Vec<Lease> = told.into_iter().flatten().filter_map(Acquired::held).collect();
    // A guard of another manager, and one that was given back by its name before.
    leases.push(b.try_acquire("foreign").unwrap().held().unwrap());
    a.release("last").unwrap();
    let released: Vec<Released> = a.release_many(leases).into_iter().map(Result::unwrap).collect();
    use Released::{GivenBack, NotHeld, StillShared};
    assert_eq!(released, [StillShared, StillShared, GivenBack, NotHeld, GivenBack]);
    assert!(mine.holds() && b.owned().len() == 1);
}

/// Redis hangs: the first batches wait for their timeout, and those after them are not sent.
#[test]
fn a_batch_that_gets_no_answer_is_the_last_one() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port());
    let store_timeout = Duration::from_secs(1);
    let config =
        Config { redis: RedisUrl::parse(&proxy.url()).unwrap(), store_timeout, ..config() };
    let a = LeaseManager::start(&config.checked().unwrap()).unwrap();
    let leases: Vec<Lease> = a
        .try_acquire_many(names(MANY / 2))
        .into_iter()
        .filter_map(|it| it.unwrap().held())
        .collect();
    assert_eq!(leases.len(), MANY / 2);
    proxy.clog();
    let began = BootClock.now();
    let released = a.release_many(leases);
    let told = a.try_acquire_many(names(MANY));
    let took = BootClock.now().since(began);
    // 10 and 20 batches, four at a time: 8 timeouts, if all were sent.
    assert!(took < store_timeout * 5, "{took:?}");
    assert!(released.iter().all(Result::is_err) && told.iter().all(Result::is_err));
    assert!(a.owned().is_empty());
    proxy.heal();
}

/// Threads that want the same names in another order, and one at a time beside them: nobody waits for ever, and all share.
#[test]
fn batches_that_overlap_share_their_names() {
    let server = MemoryServer::new(&Arc::new(ManualClock::at(10_000_000_000_000)));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let hook = move |verb: &str, stage: Stage| {
        let is_mine = (verb, stage) == ("acquire", Stage::Asked);
        counted.fetch_add(usize::from(is_mine), Ordering::SeqCst);
    };
    let store: Arc<dyn Store> = Arc::new(Hooked::new(Arc::new(MemoryStore::new(&server)), hook));
    let (me, lines) = (InstanceId::new("a"), Connections::shared(&store));
    let a = LeaseManager::start_on(&config().checked().unwrap(), me, &lines, Arc::new(BootClock))
        .unwrap();
    let forward = names(2_000);
    let backward: Vec<_> = forward.iter().rev().collect();
    let held: Vec<Vec<Lease>> = std::thread::scope(|scope| {
        let many = |it| {
            move |told: Vec<Result<Acquired, LeaseError>>| -> Vec<Lease> {
                let leases: Vec<Lease> =
                    told.into_iter().filter_map(|it| it.unwrap().held()).collect();
                assert_eq!(leases.len(), it);
                leases
            }
        };
        let (a, forward, backward) = (&a, &forward, &backward);
        let threads = [
            scope.spawn(move || many(2_000)(a.try_acquire_many(forward))),
            scope.spawn(move || many(2_000)(a.try_acquire_many(backward))),
            scope.spawn(move || {
                let one = |it: &String| a.try_acquire(it);
                many(200)(forward[900..1_100].iter().map(one).collect())
            }),
        ];
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let fences = |n: usize| held[n].iter().map(Lease::fence);
    assert!(fences(0).eq(held[1].iter().rev().map(Lease::fence)), "one tenure for each name");
    assert!(fences(2).eq(fences(0).skip(900).take(200)));
    for leases in held {
        assert!(leases.iter().all(Lease::holds));
        assert!(a.release_many(leases).iter().all(Result::is_ok));
    }
    assert!(a.owned().is_empty());
}
