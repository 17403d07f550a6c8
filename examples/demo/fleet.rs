//! The instances, as real processes, and who owns what according to Redis.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::thread::Stop;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::{Connection, RedisResult};

/// Short timings: the defaults are ten times that.
const SETTINGS: [&str; 7] = [
    "--lease-ttl=3s",
    "--renew-interval=1s",
    "--heartbeat-ttl=3s",
    "--heartbeat-interval=1s",
    "--store-timeout=300ms",
    "--interval=500ms",
    "--workers=4",
];

/// How long a process that was told to stop may take.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// The live instances by host name, and how many endpoints each owns.
pub(crate) type Shares = BTreeMap<String, usize>;

/// Every instance that runs; all are killed when dropped.
pub(crate) struct Fleet {
    program: PathBuf,
    redis: String,
    logs: PathBuf,
    running: BTreeMap<String, Child>,
}

impl Fleet {
    /// The binary is the one next to this example.
    pub(crate) fn new(redis: String, logs: &Path) -> io::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("../leasehold");
        Ok(Self { program, redis, logs: logs.into(), running: BTreeMap::new() })
    }

    pub(crate) fn start(&mut self, name: &str, new_fleet: bool) -> io::Result<()> {
        // An empty environment: whatever LEASEHOLD_ variables are set are not for this fleet.
        let mut command = Command::new(&self.program);
        command.env_clear().arg("run").args(SETTINGS).args(new_fleet.then_some("--new-fleet"));
        command.args(["--redis", &self.redis, "--host-name", name]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(self.log(name))?);
        let child = command.process_group(0).spawn().map_err(|error| {
            let program = self.program.display();
            io::Error::other(format!("cannot start {program} ({error}): use `make demo`"))
        })?;
        self.running.insert(name.into(), child);
        Ok(())
    }

    /// SIGTERM, as systemd would, and waits for the end.
    pub(crate) fn stop(&mut self, name: &str, until: &Stop) -> io::Result<()> {
        let Some(child) = self.running.get_mut(name) else { return Ok(()) };
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        kill(Pid::from_raw(pid), Signal::SIGTERM)?;
        let deadline = BootClock.now() + STOP_PATIENCE;
        while child.try_wait()?.is_none() {
            if BootClock.now() > deadline || until.within(Duration::from_millis(5)) {
                return Err(io::Error::other(format!("{name} did not stop")));
            }
        }
        self.running.remove(name);
        Ok(())
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, name: &str) {
        self.running.remove(name).iter_mut().for_each(end);
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// How many lines of this event are in the logs of those that run.
    pub(crate) fn count(&self, event: &str) -> usize {
        let wanted = format!("event={event} ");
        let logs = self.running.keys().filter_map(|name| fs::read_to_string(self.log(name)).ok());
        logs.map(|log| log.matches(&wanted).count()).sum()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.running.values_mut().for_each(end);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Who is alive, and who owns how many: `poll:node:*` and `poll:lease:*`.
pub(crate) fn shares(connection: &mut Connection) -> RedisResult<Shares> {
    let nodes: Vec<String> = redis::cmd("KEYS").arg("poll:node:*").query(connection)?;
    let mut shares: Shares = nodes.iter().map(|it| (host(&it["poll:node:".len()..]), 0)).collect();
    let leases: Vec<String> = redis::cmd("KEYS").arg("poll:lease:*").query(connection)?;
    if !leases.is_empty() {
        shares.extend(owned(connection, &leases)?);
    }
    Ok(shares)
}

/// How many of `leases` each owner has, alive or not, at one moment.
pub(crate) fn owned(connection: &mut Connection, leases: &[String]) -> RedisResult<Shares> {
    let owners: Vec<Option<String>> = redis::cmd("MGET").arg(leases).query(connection)?;
    let mut shares = Shares::new();
    for owner in owners.into_iter().flatten() {
        *shares.entry(host(&owner)).or_default() += 1;
    }
    Ok(shares)
}

fn host(instance: &str) -> String {
    instance.split('-').next().unwrap_or(instance).to_owned()
}
