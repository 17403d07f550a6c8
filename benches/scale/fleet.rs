//! Ten daemons as processes, and what can be read of them from outside.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::thread::Stop;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const BINARY: &str = env!("CARGO_BIN_EXE_leasehold");
/// A release of ten thousand leases included.
const STOP_MAX: Duration = Duration::from_secs(60);
/// Metrics are written every five seconds.
pub(crate) const METRICS_AGE: Duration = Duration::from_secs(6);

/// A running `leasehold run` without a runtime directory: nobody releases for it. Killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    name: String,
    dir: PathBuf,
}

impl Daemon {
    pub(crate) fn start(url: &str, name: &str, dir: &Path, args: &[&str]) -> io::Result<Self> {
        let file = |ending| dir.join(format!("{name}.{ending}"));
        let mut command = Command::new(BINARY);
        command.args(["run", "--redis", url, "--host-name", name, "--metrics-file"]);
        command.arg(file("prom")).args(args).env_clear().stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(File::create(file("log"))?).spawn()?;
        Ok(Self { child, name: name.into(), dir: dir.into() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `<host>-…`: the name that its leases have begins so.
    pub(crate) fn prefix(&self) -> String {
        format!("{}-", self.name)
    }

    pub(crate) fn rss(&self) -> io::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let kb = status.lines().find_map(|it| it.strip_prefix("VmRSS:")?.strip_suffix("kB"));
        let kb = kb.and_then(|it| it.trim().parse::<f64>().ok());
        kb.map(|it| it * 1_024.0).ok_or_else(|| io::Error::other("no VmRSS: the process is gone"))
    }

    /// Seconds of CPU.
    pub(crate) fn cpu(&self) -> io::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        let fields = stat.rsplit_once(") ").map(|it| it.1.split(' ').skip(11).take(2));
        let ticks = fields.into_iter().flatten().filter_map(|it| it.parse::<u32>().ok());
        Ok(f64::from(ticks.sum::<u32>()) / 100.0)
    }

    pub(crate) fn log(&self) -> io::Result<String> {
        fs::read_to_string(self.dir.join(format!("{}.log", self.name)))
    }

    /// The sum of the samples whose name and labels begin so.
    pub(crate) fn metric(&self, begins: &str) -> io::Result<f64> {
        let text = fs::read_to_string(self.dir.join(format!("{}.prom", self.name)))?;
        let values = text.lines().filter_map(|it| it.strip_prefix(begins)?.rsplit_once(' '));
        Ok(values.filter_map(|it| it.1.parse::<f64>().ok()).sum())
    }

    /// SIGKILL.
    pub(crate) fn crash(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn ask_to_stop(&self) {
        let _ = i32::try_from(self.pid()).map(|it| kill(Pid::from_raw(it), Signal::SIGTERM));
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops all of them as an operator would.
pub(crate) fn stop_all(mut fleet: Vec<Daemon>, never: &Stop) -> io::Result<()> {
    fleet.iter().for_each(Daemon::ask_to_stop);
    let step = Duration::from_millis(100);
    for _ in 0..STOP_MAX.as_millis() / step.as_millis() {
        fleet.retain_mut(|it| !it.has_ended());
        if fleet.is_empty() {
            return Ok(());
        }
        let _ = never.within(step);
    }
    Err(io::Error::other(format!("{} did not stop within {STOP_MAX:?}", fleet.len())))
}
