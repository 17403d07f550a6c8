//! What does it cost to know what there is to poll and who has it, while nothing changes? `make bench`.
//!
//! 100,000 sessions, ten whole instances (in one process, each with its own connections and threads, polling
//! next to nothing), a private Redis. Three reads of everything are measured by themselves: the names of
//! all sessions, all owners, all sessions. Then the fleet is left alone, with leases so long that no renewal
//! falls into the window, and all that the server (beyond what it spends alone) and the threads `reconcile`
//! and `watch` spend is counted, heartbeats too. What comes too seldom to be waited for is added at the rate of the default timings: each
//! owner read once in 60 s by whoever watches the lease, and a sweep by one of them every 90 s.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::config::RedisUrl;
use leasehold::daemon::thread::{Stop, stop};
use leasehold::model::EndpointId;
use leasehold::store::keys::Keys;
use leasehold::store::redis::RedisStore;
use leasehold::store::{BATCH_MAX, Store};
use leasehold::{Config, Daemon, PollPermit, Poller, Revoked, Sample, Session};
use redis::Connection;

#[path = "../examples/demo/server.rs"]
#[expect(dead_code, reason = "the demo needs more of it")]
mod server;

const SESSIONS: u32 = 100_000;
const INSTANCES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(40);
/// How often each of ten instances sweeps (daemon/look/sweep.rs): all together once in 90 s.
const SWEEP_INTERVAL: f64 = 900.0;
/// How long a round over all leases takes (daemon/look/owners.rs): twice 30 s.
const ROUND: f64 = 60.0;
const SERVER_MAX: f64 = 2.0;
const INSTANCE_MAX: f64 = 1.0;

fn main() -> ExitCode {
    match measure() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "discovery: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Polls nothing.
struct Nothing;

impl Poller for Nothing {
    fn poll(&self, _: &Session, permit: &PollPermit, _: Duration) -> Result<Sample, Revoked> {
        permit.confirm()?;
        Ok(Sample { ok: true, status: None, error: None, body: vec![], duration: Duration::ZERO })
    }
}

fn measure() -> io::Result<bool> {
    let (_source, never) = stop();
    let redis = server::PrivateRedis::start("leasehold-bench", &never)?;
    let mut line = redis.connect(&never)?;
    put_sessions(&mut line)?;
    let wait = |duration| {
        let _ = never.within(duration);
        Ok(())
    };
    let idle = Spent::of(&mut line, || wait(WINDOW / 2))?;
    let fleet = start(&redis.url(), &never)?;
    wait_until_all_is_owned(&mut line, &never)?;
    wait(Duration::from_secs(10))?; // whatever was begun is done
    let rest = Spent::of(&mut line, || wait(WINDOW))?;
    let reader = Reader::new(&redis.url())?;
    let names = Spent::of(&mut line, || reader.names())?;
    let owners = Spent::of(&mut line, || reader.owners())?;
    let sessions = Spent::of(&mut line, || reader.sessions())?;
    drop(fleet);
    say(&format!(
        "reading {SESSIONS} of them once  names {:.2} s  owners {:.2} s  sessions {:.2} s of the server's CPU",
        names.server, owners.server, sessions.server
    ));
    let each = f64::from(INSTANCES);
    let sweep = |it: fn(&Spent) -> f64| it(&names) + it(&owners) + it(&sessions) / each;
    let server = |it: &Spent| it.server;
    let client = |it: &Spent| it.client;
    let parts = [
        (
            "at rest, heartbeats too",
            rest.server / rest.took - idle.server / idle.took,
            rest.looking / rest.took / each,
        ),
        ("rounds, all owners in 60 s", owners.server / ROUND, owners.client / ROUND / each),
        (
            "sweeps, one in 90 s",
            each * sweep(server) / SWEEP_INTERVAL,
            sweep(client) / SWEEP_INTERVAL,
        ),
    ];
    say("share of a core                 server   each instance");
    for (name, of_server, of_each) in parts {
        say(&format!("{name:<28} {:>7.2} % {:>9.2} %", 100.0 * of_server, 100.0 * of_each));
    }
    let sum = |share: fn(&(&str, f64, f64)) -> f64| 100.0 * parts.iter().map(share).sum::<f64>();
    let (of_server, of_each) = (sum(|it| it.1), sum(|it| it.2));
    say(&format!("{:<28} {of_server:>7.2} % {of_each:>9.2} %", "discovery"));
    say(&format!("{:<28} {SERVER_MAX:>7.2} % {INSTANCE_MAX:>9.2} %", "bound"));
    Ok(of_server < SERVER_MAX && of_each < INSTANCE_MAX)
}

/// Seconds of CPU.
struct Spent {
    server: f64,
    /// By the threads of the fleet that look.
    looking: f64,
    /// By the thread that measures.
    client: f64,
    /// Seconds on the clock.
    took: f64,
}

impl Spent {
    fn of(line: &mut Connection, work: impl FnOnce() -> io::Result<()>) -> io::Result<Self> {
        let looks = ["reconcile", "watch"];
        let me =
            std::thread::current().name().unwrap_or_default().chars().take(15).collect::<String>();
        let before = (server_seconds(line)?, cpu_seconds(&looks)?, cpu_seconds(&[&me])?);
        let from = BootClock.now();
        work()?;
        let took = BootClock.now().since(from).as_secs_f64();
        Ok(Self {
            server: server_seconds(line)? - before.0,
            looking: cpu_seconds(&looks)? - before.1,
            client: cpu_seconds(&[&me])? - before.2,
            took,
        })
    }
}

/// Reads everything once, as instances do.
struct Reader {
    store: RedisStore,
    endpoints: Vec<EndpointId>,
}

const TIMEOUT: Duration = Duration::from_secs(10);

impl Reader {
    fn new(url: &str) -> io::Result<Self> {
        let store = RedisStore::new(url, url, Keys::new("poll", "session:"));
        let endpoint = |n| EndpointId::parse(&id(n)).map_err(io::Error::other);
        let endpoints = (0..SESSIONS).map(endpoint).collect::<io::Result<_>>()?;
        Ok(Self { store: store.map_err(io::Error::other)?, endpoints })
    }

    fn names(&self) -> io::Result<()> {
        let mut cursor = 0;
        loop {
            cursor = self.store.session_names(cursor, TIMEOUT).map_err(io::Error::other)?.cursor;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    fn owners(&self) -> io::Result<()> {
        let read = |it| self.store.owners(it, TIMEOUT).map(drop).map_err(io::Error::other);
        self.endpoints.chunks(BATCH_MAX).try_for_each(read)
    }

    fn sessions(&self) -> io::Result<()> {
        let read = |it| self.store.sessions(it, TIMEOUT).map(drop).map_err(io::Error::other);
        self.endpoints.chunks(200).try_for_each(read)
    }
}

fn id(n: u32) -> String {
    format!("2f1c8a4e-0000-4000-8000-{n:012}")
}

fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn put_sessions(line: &mut Connection) -> io::Result<()> {
    let numbers: Vec<u32> = (0..SESSIONS).collect();
    for batch in numbers.chunks(1_000) {
        let mut pipe = redis::pipe();
        for n in batch {
            let id = id(*n);
            // Polled once a day: the polls are not what is measured.
            let session =
                format!(r#"{{"id":"{id}","address":"127.0.0.1:9","intervalMs":86400000}}"#);
            pipe.cmd("SET").arg(format!("session:{id}")).arg(session).ignore();
        }
        pipe.exec(line).map_err(io::Error::other)?;
    }
    Ok(())
}

fn start(url: &str, until: &Stop) -> io::Result<Vec<Daemon>> {
    let redis = RedisUrl::parse(url).map_err(io::Error::other)?;
    let config = Config {
        redis,
        workers: 1,
        new_fleet: true,
        lease_ttl: Duration::from_secs(3_000),
        renew_interval: Duration::from_secs(1_000),
        ..Config::default()
    };
    let config = config.checked().map_err(io::Error::other)?;
    let instance = |_| Daemon::start_redis(&config, Arc::new(Nothing), until);
    (0..INSTANCES).map(instance).collect::<Result<_, _>>().map_err(io::Error::other)
}

fn wait_until_all_is_owned(line: &mut Connection, never: &Stop) -> io::Result<()> {
    let from = BootClock.now();
    let mut keys = 0;
    while BootClock.now().since(from) < Duration::from_secs(60) {
        keys = redis::cmd("DBSIZE").query(line).map_err(io::Error::other)?;
        // A session, a lease and the fence of its grant.
        if keys >= 3 * u64::from(SESSIONS) {
            say(&format!("all owned after {:.1} s", BootClock.now().since(from).as_secs_f64()));
            return Ok(());
        }
        let _ = never.within(Duration::from_millis(100));
    }
    Err(io::Error::other(format!("not everything is owned after a minute: {keys} keys")))
}

fn server_seconds(line: &mut Connection) -> io::Result<f64> {
    let info: String = redis::cmd("INFO").arg("cpu").query(line).map_err(io::Error::other)?;
    let field = |name: &str| {
        let value = info.lines().find_map(|it| it.strip_prefix(name))?;
        value.trim().parse::<f64>().ok()
    };
    let both = field("used_cpu_user:").zip(field("used_cpu_sys:"));
    both.map(|it| it.0 + it.1).ok_or_else(|| io::Error::other("the server does not tell its CPU"))
}

/// Seconds of CPU that the threads of these names have spent.
fn cpu_seconds(names: &[&str]) -> io::Result<f64> {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat.split_once('(').and_then(|it| it.1.rsplit_once(") ")) else {
            continue;
        };
        if names.contains(&name) {
            let fields = rest.split(' ').skip(11).take(2);
            ticks += fields.filter_map(|it| it.parse::<u32>().ok()).sum::<u32>();
        }
    }
    Ok(f64::from(ticks) / 100.0)
}
