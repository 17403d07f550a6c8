//! The release binary as a process.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use leasehold::thread::Thread;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_leasehold");

/// A running `leasehold run`, ready. Killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    /// Reads on, so that the process never waits for its log to be read.
    log: Option<Thread>,
}

impl Daemon {
    /// With these options besides.
    pub(crate) fn start(url: &str, options: &[&str]) -> io::Result<Self> {
        Self::start_binary(BINARY, url, options)
    }

    /// The same of another build.
    pub(crate) fn start_binary(binary: &str, url: &str, options: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(binary);
        command.args(["run", "--new-fleet", "--redis", url]).args(options);
        command.env_clear().stdin(Stdio::null());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut daemon = Self { child, log: None };
        let mut lines = BufReader::new(stderr).lines();
        let mut said = String::new();
        loop {
            let Some(line) = lines.next().transpose()? else {
                return Err(io::Error::other(format!("it ended before it was ready:\n{said}")));
            };
            if line.contains("event=daemon.ready") {
                break;
            }
            said.push_str(&line);
            said.push('\n');
        }
        daemon.log = Some(Thread::spawn("log", move || lines.for_each(drop))?);
        Ok(daemon)
    }

    pub(crate) fn rss_mb(&self) -> io::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kb = status.lines().find_map(|it| it.strip_prefix("VmRSS:")?.strip_suffix("kB"));
        let kb = kb.and_then(|it| it.trim().parse::<f64>().ok());
        kb.map(|it| it / 1e3).ok_or_else(|| io::Error::other("no VmRSS: the process is gone"))
    }

    /// Seconds of CPU that it has spent.
    pub(crate) fn cpu(&self) -> io::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields = stat.rsplit_once(") ").map_or("", |it| it.1).split(' ').skip(11).take(2);
        Ok(fields.filter_map(|it| it.parse::<f64>().ok()).sum::<f64>() / 100.0)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
