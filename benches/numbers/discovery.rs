//! What does it cost to know what there is to poll and who has it, while nothing changes?
//!
//! 100,000 sessions, ten whole instances (in one process, each with its own connections and threads, polling
//! next to nothing), a private Redis. Three reads of everything are measured by themselves: the names of
//! all sessions, all owners, all sessions. Then the fleet is left alone, with leases so long that no renewal
//! falls into the window, and all that the server (beyond what it spends alone) and the threads `reconcile`
//! and `watch` spend is counted, heartbeats too. What comes too seldom to be waited for is added at the rate of the default timings: each
//! owner read once in 60 s by the instance that watches the lease, and a resync by one of them every 90 s.

use std::io;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::thread::stop;

use crate::fleet::{self, wait_until_all_is_owned};
use crate::reader::Reader;
use crate::sessions::put_sessions;
use testkit::bench::meter::{Meter, thread_cpu};
use testkit::bench::table::{Better, Row};
use testkit::private_redis::PrivateRedis;

const SESSIONS: u32 = 100_000;
const INSTANCES: u32 = 10;
/// Each part is measured so often.
const TURNS: usize = 3;
const WINDOW: Duration = Duration::from_secs(13);
/// How often each of ten instances resyncs (`fleet/informer/resync.rs`): all together once in 90 s.
const RESYNC_INTERVAL: f64 = 900.0;
/// How long an audit of all leases takes (`fleet/informer/audit.rs`): twice 30 s.
const ROUND: f64 = 60.0;
/// For all to be owned, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);
const SERVER_MAX: f64 = 2.0;
const INSTANCE_MAX: f64 = 1.0;

/// The rows, and what has to be known to read them.
pub(crate) fn measure() -> io::Result<(String, Vec<Row>)> {
    let (_source, never) = stop();
    let redis = PrivateRedis::start("leasehold-bench", &never)?;
    let mut line = redis.connect(&never)?;
    put_sessions(&mut line, SESSIONS)?;
    let mut meter = Meter(redis.connect(&never)?);
    let wait = |duration| {
        let _ = never.within(duration);
        Ok(())
    };
    let idle = Spent::of(&mut meter, || wait(WINDOW))?;
    let fleet = fleet::start(&redis.url(), INSTANCES, &never)?;
    let owned_after = wait_until_all_is_owned(&mut line, SESSIONS, PATIENCE, &never)?;
    wait(Duration::from_secs(10))?; // whatever was begun is done
    let reader = Reader::new(&redis.url(), SESSIONS)?;
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        turns.push(Turn {
            rest: Spent::of(&mut meter, || wait(WINDOW))?.beyond(&idle),
            names: Spent::of(&mut meter, || reader.names())?,
            owners: Spent::of(&mut meter, || reader.owners())?,
            sessions: Spent::of(&mut meter, || reader.sessions())?,
        });
    }
    drop(fleet);
    let note = format!("{SESSIONS} sessions, {INSTANCES} instances, {TURNS} turns");
    Ok((note, rows(&turns, owned_after)))
}

/// One look at all parts.
struct Turn {
    rest: Spent,
    names: Spent,
    owners: Spent,
    sessions: Spent,
}

impl Turn {
    /// Shares of a core: at rest with heartbeats, rounds, resyncs.
    fn server(&self) -> [f64; 3] {
        let all = self.names.server + self.owners.server;
        let each = f64::from(INSTANCES);
        let resync = all + self.sessions.server / each;
        [
            self.rest.server / self.rest.took,
            self.owners.server / ROUND,
            each * resync / RESYNC_INTERVAL,
        ]
    }

    /// The same of one instance.
    fn instance(&self) -> [f64; 3] {
        let each = f64::from(INSTANCES);
        let resync = self.names.client + self.owners.client + self.sessions.client / each;
        [
            self.rest.looking / self.rest.took / each,
            self.owners.client / ROUND / each,
            resync / RESYNC_INTERVAL,
        ]
    }
}

fn rows(turns: &[Turn], owned_after: Duration) -> Vec<Row> {
    let row = |name: &str, unit, of: &dyn Fn(&Turn) -> f64| {
        Row::new(name, unit, Better::Less, &turns.iter().map(of).collect::<Vec<_>>())
    };
    let percent = |parts: [f64; 3]| parts.into_iter().sum::<f64>() * 100.0;
    vec![
        row("discovery: server, share of a core", "%", &|it| percent(it.server())).goal(SERVER_MAX),
        row("at rest, heartbeats too: server", "%", &|it| it.server()[0] * 100.0),
        row("rounds, all owners in 60 s: server", "%", &|it| it.server()[1] * 100.0),
        row("resyncs, one in 90 s: server", "%", &|it| it.server()[2] * 100.0),
        row("discovery: each instance, share of a core", "%", &|it| percent(it.instance()))
            .goal(INSTANCE_MAX),
        row("reading all names once: server CPU", "s", &|it| it.names.server),
        row("reading all owners once: server CPU", "s", &|it| it.owners.server),
        row("reading all sessions once: server CPU", "s", &|it| it.sessions.server),
        row("from start until all is owned", "s", &|_| owned_after.as_secs_f64()),
    ]
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
    fn of(meter: &mut Meter, work: impl FnOnce() -> io::Result<()>) -> io::Result<Self> {
        let before = (meter.server_seconds()?, looking()?, thread_cpu()?);
        let from = BootClock.now();
        work()?;
        let took = BootClock.now().since(from).as_secs_f64();
        Ok(Self {
            server: meter.server_seconds()? - before.0,
            looking: looking()? - before.1,
            client: (thread_cpu()? - before.2).as_secs_f64(),
            took,
        })
    }

    /// Without what the server spends by itself.
    fn beyond(self, idle: &Self) -> Self {
        Self { server: self.server - idle.server / idle.took * self.took, ..self }
    }
}

/// Seconds of CPU that the threads of the fleet that look have spent.
fn looking() -> io::Result<f64> {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat.split_once('(').and_then(|it| it.1.rsplit_once(") ")) else {
            continue;
        };
        if ["reconcile", "watch"].contains(&name) {
            let fields = rest.split(' ').skip(11).take(2);
            ticks += fields.filter_map(|it| it.parse::<u32>().ok()).sum::<u32>();
        }
    }
    Ok(f64::from(ticks) / 100.0)
}
