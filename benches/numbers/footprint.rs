//! How big is it, how soon is it ready, and how much memory does it need while nothing happens?
//!
//! The release binary as a process, on private Redis servers with no sessions, a hundred and ten thousand, by
//! turns. Before each start the server forgets everything but the sessions, so that every start is the first.

use std::fs;
use std::io;
use std::process::Command;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::thread::{Stop, stop};
use redis::Connection;

use crate::fleet::wait_until_all_is_owned;
use crate::process::{BINARY, Daemon};
use crate::sessions::put_sessions;
use testkit::bench::table::{Better, Row};
use testkit::private_redis::PrivateRedis;

const SIZES: [u32; 3] = [0, 100, 10_000];
const TURNS: usize = 5;
/// What was begun when all is owned has ended by then.
const SETTLED: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);
const RUNTIMES: [&str; 4] = ["tokio", "async-std", "smol", "async-executor"];

/// The rows, and what has to be known to read them.
pub(crate) fn measure() -> io::Result<(String, Vec<Row>)> {
    let mut rows = vec![size()?];
    rows.extend(packages()?);
    let (_source, never) = stop();
    let mut scenes = Vec::new();
    for sessions in SIZES {
        scenes.push(Scene::new(sessions, &never)?);
    }
    for _ in 0..TURNS {
        for scene in &mut scenes {
            scene.turn(&never)?;
        }
    }
    for Scene { sessions, ready_ms, .. } in &scenes {
        let name = format!("start until ready, {sessions} sessions");
        rows.push(Row::new(&name, "ms", Better::Less, ready_ms));
    }
    for Scene { sessions, rss_mb, .. } in &scenes {
        let name = format!("resident memory at rest, {sessions} leases");
        rows.push(Row::new(&name, "MB", Better::Less, rss_mb));
    }
    Ok((format!("the release binary, {TURNS} turns"), rows))
}

fn size() -> io::Result<Row> {
    let bytes = u32::try_from(fs::metadata(BINARY)?.len()).map_err(io::Error::other)?;
    Ok(Row::new("size of the binary", "MB", Better::Less, &[f64::from(bytes) / 1e6]))
}

/// What is linked into the binary, and how much of it is an async runtime.
fn packages() -> io::Result<[Row; 2]> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let tree = tree.output()?;
    if !tree.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&tree.stderr).into_owned()));
    }
    let tree = String::from_utf8_lossy(&tree.stdout).into_owned();
    let mut packages: Vec<&str> = tree.lines().map(|it| it.trim_end_matches(" (*)")).collect();
    packages.sort_unstable();
    packages.dedup();
    let is_runtime = |it: &&&str| RUNTIMES.iter().any(|name| it.split(' ').next() == Some(name));
    let runtimes = packages.iter().filter(is_runtime).count();
    let row = |name, n: usize| {
        let n = f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        Row::new(name, "", Better::Less, &[n])
    };
    Ok([
        row("packages it is made of, itself too", packages.len()),
        row("async runtimes among them", runtimes).goal(0.0),
    ])
}

/// A server with so many sessions, and what was measured on it.
struct Scene {
    redis: PrivateRedis,
    line: Connection,
    sessions: u32,
    ready_ms: Vec<f64>,
    rss_mb: Vec<f64>,
}

impl Scene {
    fn new(sessions: u32, never: &Stop) -> io::Result<Self> {
        let redis = PrivateRedis::start(&format!("leasehold-bench-{sessions}"), never)?;
        let line = redis.connect(never)?;
        Ok(Self { redis, line, sessions, ready_ms: vec![], rss_mb: vec![] })
    }

    fn turn(&mut self, never: &Stop) -> io::Result<()> {
        redis::cmd("FLUSHALL").exec(&mut self.line).map_err(io::Error::other)?;
        put_sessions(&mut self.line, self.sessions)?;
        let began = BootClock.now();
        let daemon = Daemon::start(&self.redis.url(), &[])?;
        self.ready_ms.push(BootClock.now().since(began).as_secs_f64() * 1_000.0);
        wait_until_all_is_owned(&mut self.line, self.sessions, PATIENCE, never)?;
        let _ = never.within(SETTLED);
        self.rss_mb.push(daemon.rss_mb()?);
        Ok(())
    }
}
