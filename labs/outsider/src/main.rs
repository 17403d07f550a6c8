//! Does the library do for a stranger what README.md and docs/library.md promise? Only public names, no `__internals`, and
//! a private redis-server: `make outsider`, a few seconds.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use leasehold::testing::TestRedis;
use leasehold::{
    Acquired, Attempt, Config, Daemon, ElectionEvent, InstanceId, LeaderElection, LeaseError,
    LeaseManager, PollPermit, Poller, RedisUrl, Released, Revoked, Sample, Session, Stop,
};

type Outcome = Result<(), Box<dyn Error>>;
type Step = fn(&Redis) -> Outcome;

const STEPS: [(&str, Step); 6] = [
    ("acquires, shares and gives back", acquire),
    ("waits, and is woken by a release", wait),
    ("takes and gives back a thousand names", batch),
    ("hears of a lost lease", hear),
    ("elects a leader", elect),
    ("polls in its own way", poll),
];

/// For what happens within a second.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Outcome {
    test_without_redis()?;
    println!("tests itself without Redis");
    let redis = Redis::start()?;
    for (name, step) in STEPS {
        let began = Instant::now();
        step(&redis).map_err(|error| format!("{name}: {error}"))?;
        println!("{name}: {:?}", began.elapsed());
    }
    Ok(())
}

/// A redis-server on a socket in a directory of its own, gone at the end.
struct Redis {
    server: Child,
    dir: PathBuf,
}

impl Redis {
    fn start() -> Result<Self, Box<dyn Error>> {
        let dir = std::env::temp_dir().join(format!("outsider-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(dir.join("socket"));
        let server = command.arg("--dir").arg(&dir).stdout(Stdio::null()).spawn()?;
        let redis = Self { server, dir };
        let (_source, stop) = Stop::pair();
        let began = Instant::now();
        while redis.ask("PING").is_err() {
            ensure(began.elapsed() < PATIENCE, "redis-server does not answer")?;
            stop.within(Duration::from_millis(10));
        }
        Ok(redis)
    }

    fn socket(&self) -> PathBuf {
        Path::new(&self.dir).join("socket")
    }

    /// The first bytes of the answer to one command.
    fn ask(&self, command: &str) -> Result<String, Box<dyn Error>> {
        let mut stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "{command}\r\n")?;
        let mut answer = [0; 256];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn config(&self, host_name: &str) -> Result<Config, Box<dyn Error>> {
        let seconds = Duration::from_secs;
        let mut config = Config::default();
        config.redis = RedisUrl::parse(&self.url())?;
        config.host_name = host_name.into();
        config.lease_ttl = seconds(3);
        config.renew_interval = seconds(1);
        config.heartbeat_ttl = seconds(3);
        config.heartbeat_interval = seconds(1);
        config.store_timeout = Duration::from_millis(300);
        config.new_fleet = true;
        Ok(config)
    }

    fn manager(&self, host_name: &str) -> Result<LeaseManager, Box<dyn Error>> {
        Ok(LeaseManager::start(&self.config(host_name)?.checked()?)?)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn ensure(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn acquire(redis: &Redis) -> Outcome {
    let (one, two) = (redis.manager("one")?, redis.manager("two")?);
    let lease = one.try_acquire("report")?.held().ok_or("the lease is not granted")?;
    let share = one.try_acquire("report")?.held().ok_or("the lease is not shared")?;
    ensure(lease.holds() && share.fence() == lease.fence(), "two guards are not one tenure")?;
    match two.try_acquire("report")? {
        Acquired::HeldBy(owner) => ensure(owner == *one.instance_id(), "held by a stranger")?,
        other => return Err(other.to_string().into()),
    }
    ensure(lease.release()? == Released::StillShared, "the first guard gave it back")?;
    ensure(share.release()? == Released::GivenBack, "the last guard did not give it back")?;
    let ran = two.with_lease("report", Duration::ZERO, |lease| lease.holds())?;
    ensure(ran == Some(true), "the closure did not run under the lease")?;
    ensure(two.stop_within(PATIENCE), "the stop was not in time")
}

fn wait(redis: &Redis) -> Outcome {
    let (one, two) = (redis.manager("one")?, redis.manager("two")?);
    let lease = one.try_acquire("report")?.held().ok_or("the lease is not granted")?;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| two.acquire("report", PATIENCE).map(|it| it.held().is_some()));
        // It is too short to be taken for the release.
        let began = Instant::now();
        ensure(!lease.wait_lost(Duration::from_millis(300)), "lost")?;
        ensure(!waits.is_finished() && began.elapsed().as_millis() >= 300, "it did not wait")?;
        let released = Instant::now();
        lease.release()?;
        ensure(waits.join().is_ok_and(|it| it.is_ok_and(|it| it)), "not granted")?;
        ensure(released.elapsed() < Duration::from_secs(3), "not woken by the release")
    })
}

fn batch(redis: &Redis) -> Outcome {
    let manager = redis.manager("one")?;
    let names: Vec<String> = (0..1_000).map(|it| format!("name-{it}")).collect();
    let leases: Result<Vec<_>, _> = manager.try_acquire_many(&names).into_iter().collect();
    let leases: Vec<_> = leases?.into_iter().filter_map(Acquired::held).collect();
    ensure(leases.len() == names.len() && manager.owned().len() == names.len(), "not all")?;
    let owners = manager.preferred_owners(&names);
    let me = manager.instance_id();
    let mine =
        |it: Result<Option<InstanceId>, LeaseError>| it.is_ok_and(|it| it.as_ref() == Some(me));
    ensure(owners.into_iter().all(mine), "a stranger is preferred")?;
    let told = manager.release_many(leases);
    let is_back = |it: Result<Released, LeaseError>| it.is_ok_and(|it| it == Released::GivenBack);
    ensure(told.len() == names.len() && told.into_iter().all(is_back), "not all given back")
}

fn hear(redis: &Redis) -> Outcome {
    let manager = redis.manager("one")?;
    let (tell, heard) = channel();
    let listener = manager.on_lost(move |lost| drop(tell.send(lost.clone())))?;
    let lease = manager.try_acquire("report")?.held().ok_or("the lease is not granted")?;
    redis.ask("SET poll:lease:report a-thief PX 2000")?;
    let lost = heard.recv_timeout(PATIENCE)?;
    ensure(lost.name() == "report" && lost.fence() == lease.fence(), "another lease")?;
    ensure(lease.wait_lost(Duration::ZERO) && !lease.holds(), "the guard still holds")?;
    listener.unregister();
    Ok(())
}

fn elect(redis: &Redis) -> Outcome {
    let (tell, heard) = channel();
    let stand = || -> Result<_, Box<dyn Error>> {
        let builder = LeaderElection::builder("cleanup")?.redis(&redis.url())?;
        Ok(builder.ttl(Duration::from_secs(3)).new_fleet())
    };
    let one = stand()?.on_event(move |event| drop(tell.send(event.clone()))).start()?;
    ensure(one.wait_for_leadership(PATIENCE), "not elected")?;
    let term = one.run_if_leader(|duty| duty.term()).ok_or("it does not lead")?;
    let is_led =
        |it| matches!(it, ElectionEvent::LeadershipAcquired { term: of, .. } if of == term);
    while !is_led(heard.recv_timeout(PATIENCE)?) {}
    match stand()?.try_lead()? {
        Attempt::LedBy(leader) => ensure(leader == *one.instance_id(), "led by a stranger")?,
        other => return Err(other.to_string().into()),
    }
    let two = stand()?.start()?;
    one.stop();
    ensure(two.wait_for_leadership(PATIENCE) && two.term() > Some(term), "no successor")
}

/// Says that every endpoint is well.
#[derive(Default)]
struct Own {
    polls: AtomicUsize,
}

impl Poller for Own {
    fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
        permit.confirm()?;
        self.polls.fetch_add(1, Ordering::Relaxed);
        let (body, duration) = (b"well".to_vec(), Duration::from_millis(1));
        Ok(Sample { ok: true, status: None, error: None, body, duration })
    }
}

fn poll(redis: &Redis) -> Outcome {
    redis.ask(r#"SET session:e1 '{"id":"e1","address":"192.0.2.1:80"}'"#)?;
    let (_source, stop) = Stop::pair();
    let mut config = redis.config("daemon")?;
    config.interval = Duration::from_millis(100);
    let poller = Arc::new(Own::default());
    let same: Arc<dyn Poller> = Arc::<Own>::clone(&poller);
    let daemon = Daemon::start_redis(&config.checked()?, same, &stop)?;
    let began = Instant::now();
    while poller.polls.load(Ordering::Relaxed) < 5 {
        ensure(began.elapsed() < PATIENCE, "fewer than five polls")?;
        stop.within(Duration::from_millis(20));
    }
    daemon.stop();
    let polls = poller.polls.load(Ordering::Relaxed);
    ensure(!stop.within(Duration::from_millis(300)), "stopped by itself")?;
    ensure(polls == poller.polls.load(Ordering::Relaxed), "it polls after its stop")?;
    ensure(redis.ask("HGET poll:result:e1 body")?.contains("well"), "no result is stored")
}

/// As a test of this program would: no Redis, and no time.
fn test_without_redis() -> Outcome {
    let redis = TestRedis::new();
    let (one, two) = (redis.manager("one")?, redis.manager("two")?);
    let lease = one.try_acquire("report")?.held().ok_or("the lease is not granted")?;
    redis.cut_off(one.instance_id());
    redis.clock().advance(Duration::from_secs(40));
    ensure(!lease.holds(), "it holds a lease that could have moved")?;
    let taken = two.try_acquire("report")?.held().ok_or("nobody takes over")?;
    ensure(taken.fence() > lease.fence(), "the fence went back")
}
