//! The whole path through sentinels and over the shards of a cluster: real servers, real processes.
//! What takes longer is in `make topologies`.

mod cluster;
mod sentinels;

use std::time::{Duration, Instant};

use testkit::process::{Instance, SOON, eventually, field, leasehold, ms};
use testkit::site::{Site, World};

/// From the end of a master until everything is polled again: it is noticed, replaced, and then nothing is
/// granted for a TTL and a margin (R5); on a machine that is busy.
const AGAIN: Duration = ms(15_000);

/// A status that fails: its exit code and the sentence.
#[track_caller]
fn refused(url: &str, args: &[&str]) -> String {
    let url = format!("--redis={url}");
    let done = leasehold(&[&["status", &url], args].concat());
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    String::from_utf8(done.stderr).unwrap()
}

/// The same for one that is to run, which does not wait for what will not come.
#[track_caller]
fn does_not_start(url: &str, args: &[&str], why: &str) {
    let mut run = Instance::start_at(url, args);
    let ended = run.wait();
    assert!(!ended.success(), "{:?}", run.log());
    assert!(run.says(why), "{:?}", run.log());
}

/// Everything that people and instances do, by the URL alone.
fn whole_path<S: Site>(site: S) {
    let mut world = World::populated(site, 2, &[]);
    // Added by a command, and noticed at once by everybody.
    let before = Instant::now();
    let address = world.target.address();
    assert_eq!(world.command(&["sessions", "add", &address, "--id", "added"]), "added\n");
    let path_of_none = [String::new()];
    world.target.wait_for_polls(&path_of_none, before, SOON);
    assert!(before.elapsed() < ms(5_000), "it was swept up and not heard");
    let list = world.command(&["sessions", "list"]);
    let mut all = world.endpoints.iter().map(String::as_str).chain(["added"]);
    assert!(all.all(|it| list.contains(it)), "{list}");
    let status = world.command(&["status"]);
    assert!(world.fleet.iter().all(|it| status.contains(&it.id())), "{status}");
    assert_eq!(status.matches(env!("CARGO_PKG_VERSION")).count(), 2, "each tells: {status}");
    let history = world.command(&["history"]);
    assert!(history.contains("added"), "{history}");
    world.command(&["sessions", "remove", "added"]);
    // Drained, back again, and gone.
    world.command(&["drain", "vm0", "--wait", "10s"]);
    assert_eq!(world.shares().get(&world.fleet[0].id()), None, "{:?}", world.shares());
    world.command(&["undrain", "vm0"]);
    world.settle();
    let mut dead = world.fleet.pop().unwrap();
    dead.kill9();
    let story = || world.command(&["status"]);
    // Its heartbeat has to end, or a release would be refused.
    eventually(SOON, "a release", story, || {
        let url = format!("--redis={}", world.site.url());
        leasehold(&["release", "--instance", &dead.id(), &url]).status.success()
    });
    world.settle();
    assert_eq!(world.fleet[0].term().code(), Some(0));
    assert!(world.owners().is_empty(), "{:?}", world.owners());
    world.assert_sound();
}

/// R16: at leases of 30 s a killed process is replaced in seconds. Returns the hint by which it was revoked.
fn revoked_path<S: Site>(site: S) -> String {
    let long = ["--lease-ttl=30s", "--renew-interval=10s", "--heartbeat-ttl=30s"];
    let args = [&long[..], &["--heartbeat-interval=10s", "--store-timeout=2s"]].concat();
    let mut world = World::populated(site, 3, &args);
    let mut dead = world.fleet.pop().unwrap();
    let id = dead.id();
    assert!(world.shares().contains_key(&id));
    let killed_at = Instant::now();
    dead.kill9();
    eventually(
        ms(15_000),
        "a takeover",
        || format!("{:?}", world.shares()),
        || {
            let shares = world.shares();
            !shares.contains_key(&id) && shares.values().sum::<usize>() == world.endpoints.len()
        },
    );
    println!("taken over {:?} after the kill", killed_at.elapsed());
    let revoked = world.fleet.iter().flat_map(|it| it.lines(&["event=instance.revoked", &id]));
    let hints: Vec<String> = revoked.filter_map(|it| field(&it, "reason")).collect();
    assert_eq!(hints.len(), 1, "{hints:?}");
    world.assert_sound();
    hints[0].clone()
}
