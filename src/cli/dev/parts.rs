//! Which processes does `leasehold dev` run, and how do they end? Each under a poll supervisor of its own.
//!
//! The supervisor ends its program when this process closes the pipe to it or is gone, even by SIGKILL (R12). When the
//! supervisor itself is killed, its process group is. So nothing outlives `leasehold dev`.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::thread::{Stop, Thread};

/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(5);
/// How long a part may take to end in all.
const PATIENCE: Duration = Duration::from_secs(8);
const TICK: Duration = Duration::from_millis(20);
/// A part that ends sooner than this after its start has failed.
const SETTLED: Duration = Duration::from_secs(5);
/// A part that fails this many times in a row is not started again.
const FAILURES_MAX: u32 = 3;
/// As much of a log is read for its last line.
const TAIL_BYTES: u64 = 4_096;

/// A program to run, and what runs.
pub(super) struct Part {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    /// How long after its end it is started again.
    pause: Duration,
    running: Option<Running>,
    started: Moment,
    failures: u32,
    again_at: Option<Moment>,
}

struct Running {
    supervisor: Child,
    /// Closed to end the program.
    pipe: Option<ChildStdin>,
    /// How it ended, when it has.
    verdict: Receiver<String>,
    _reader: Thread,
}

/// A part that has ended without being told to.
pub(super) struct Ended {
    pub(super) name: String,
    /// `was killed (signal 9)`.
    pub(super) how: String,
    /// `None` after too many failures in a row.
    pub(super) again_in: Option<Duration>,
}

impl Part {
    pub(super) fn new(name: &str, program: PathBuf, args: Vec<String>, pause: Duration) -> Self {
        let (name, started) = (name.into(), BootClock.now());
        Self { name, program, args, pause, running: None, started, failures: 0, again_at: None }
    }
}

/// All of them, in the order in which they were started.
pub(super) struct Parts {
    leasehold: PathBuf,
    directory: PathBuf,
    hurry: Stop,
    /// What the programs are told by their environment.
    settings: Vec<(&'static str, OsString)>,
    parts: Vec<Part>,
    /// Removes the directory when this process is gone without having done so.
    remover: Option<Child>,
}

impl Parts {
    pub(super) fn new(leasehold: &Path, directory: &Path, hurry: Stop) -> Result<Self, String> {
        let (leasehold, directory) = (leasehold.into(), directory.into());
        Ok(Self { leasehold, directory, hurry, settings: vec![], parts: vec![], remover: None })
    }

    /// Has the directory removed also when this process is killed.
    pub(super) fn remove_at_the_end(&mut self, directory: &Path) -> Result<(), String> {
        let mut command = Command::new("/bin/sh");
        // The read ends when this process does. The second attempt is for a file that a part wrote meanwhile.
        command.args(["-c", r#"read _; rm -rf -- "$0" || { sleep 1; rm -rf -- "$0"; }"#]);
        command.arg(directory).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.process_group(0).spawn();
        self.remover = Some(child.map_err(|error| format!("cannot start /bin/sh: {error}"))?);
        Ok(())
    }

    /// Passes the Redis and the prefixes of `config` on to every part that starts from now on.
    pub(super) fn pass_on(&mut self, config: &Config, redis: &str) {
        self.settings = environment(config, redis);
    }

    pub(super) fn start(&mut self, part: Part) -> Result<(), String> {
        let mut part = part;
        self.run(&mut part)?;
        self.parts.push(part);
        Ok(())
    }

    fn run(&self, part: &mut Part) -> Result<(), String> {
        let grace = GRACE.as_millis().to_string();
        let mut command = Command::new(&self.leasehold);
        command.args(["poll-supervisor", "--grace-ms", &grace, "--", "/bin/sh", "-c"]);
        // The supervisor would keep only the end of what the program says.
        command.arg(r#"exec "$@" >>"$0" 2>&1"#).arg(self.log(&part.name));
        command.arg(&part.program).args(&part.args);
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        command.envs(self.settings.iter().map(|it| (it.0, &it.1)));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let cannot = |error: io::Error| format!("cannot start {}: {error}", part.name);
        let mut supervisor = command.process_group(0).spawn().map_err(cannot)?;
        let mut pipe = supervisor.stdin.take();
        if let Some(pipe) = &mut pipe {
            // An empty document for the program's input. A supervisor that is gone already is noticed by its silence.
            let _ = pipe.write_all(b"0\n");
        }
        let (told, verdict) = bounded(1);
        let report = supervisor.stderr.take();
        let reader = Thread::spawn("dev-part", move || read_report(report, &told));
        let reader = reader.map_err(cannot)?;
        part.running = Some(Running { supervisor, pipe, verdict, _reader: reader });
        (part.started, part.again_at) = (BootClock.now(), None);
        Ok(())
    }

    /// The parts that have ended since the last call.
    pub(super) fn ended(&mut self) -> Vec<Ended> {
        let mut all = Vec::new();
        for part in &mut self.parts {
            let Some(how) = part.running.as_ref().and_then(|it| it.verdict.try_recv().ok()) else {
                continue;
            };
            part.running.take().into_iter().for_each(Running::reap);
            let has_failed = BootClock.now().since(part.started) < SETTLED;
            part.failures = if has_failed { part.failures + 1 } else { 0 };
            let again_in = (part.failures < FAILURES_MAX).then_some(part.pause);
            part.again_at = again_in.map(|it| BootClock.now() + it);
            all.push(Ended { name: part.name.clone(), how, again_in });
        }
        all
    }

    /// Starts the parts whose pause is over; which.
    pub(super) fn restart_due(&mut self) -> Result<Vec<String>, String> {
        let mut parts = std::mem::take(&mut self.parts);
        let due = |it: &Part| it.again_at.is_some_and(|at| BootClock.now() >= at);
        let started = parts.iter_mut().filter(|it| due(it)).map(|part| {
            self.run(part)?;
            Ok(part.name.clone())
        });
        let started = started.collect();
        self.parts = parts;
        started
    }

    /// The process of the program itself, for a user who wants to kill it.
    pub(super) fn pid(&self, name: &str) -> Option<u32> {
        let supervisor = self.parts.iter().find(|it| it.name == name)?.running.as_ref()?;
        let id = supervisor.supervisor.id();
        let deadline = BootClock.now() + PATIENCE;
        loop {
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
            match children.split_whitespace().next() {
                Some(child) => return child.parse().ok(),
                // The supervisor has not started it yet.
                None if BootClock.now() > deadline || self.hurry.within(TICK) => return None,
                None => (),
            }
        }
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }

    /// The last line of its log, as the end of a sentence.
    pub(super) fn last_words(&self, name: &str) -> String {
        let last = last_line(&self.log(name));
        last.map_or_else(String::new, |it| format!("; {name} said last: {it}"))
    }

    pub(super) fn all_last_words(&self) -> String {
        self.parts.iter().map(|it| self.last_words(&it.name)).collect()
    }

    /// Ends all of them, the last one first: instances give their leases back while the server is there.
    pub(super) fn end(&mut self) {
        let is_server = |it: &Part| it.name == "redis";
        let (servers, others): (Vec<Part>, Vec<Part>) =
            std::mem::take(&mut self.parts).into_iter().partition(is_server);
        for mut group in [others, servers] {
            group
                .iter_mut()
                .filter_map(|it| it.running.as_mut())
                .for_each(|it| drop(it.pipe.take()));
            let deadline = BootClock.now() + PATIENCE;
            for running in group.into_iter().filter_map(|it| it.running) {
                while running.verdict.is_empty() && BootClock.now() < deadline {
                    if self.hurry.within(TICK) {
                        break;
                    }
                }
                running.reap();
            }
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.end();
        if let Some(mut remover) = self.remover.take() {
            drop(remover.stdin.take());
            let _ = remover.wait();
        }
    }
}

impl Running {
    /// Kills what is left of its process group, and reaps the supervisor.
    fn reap(mut self) {
        if let Ok(id) = i32::try_from(self.supervisor.id()) {
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
        let _ = self.supervisor.wait();
    }
}

/// Reads what a supervisor reports until it ends, and says how its program did.
fn read_report(report: Option<impl Read>, told: &Sender<String>) {
    let mut how = String::from("was left without its supervisor");
    for line in report.into_iter().flat_map(|it| BufReader::new(it).lines()).map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("exit", code)) => how = format!("ended with exit code {code}"),
            Some(("signal", signal)) => how = format!("was killed (signal {signal})"),
            Some(("failed" | "short", why)) => how = format!("could not start: {why}"),
            _ => (),
        }
    }
    let _ = told.send(how);
}

/// The options of every command that asks the store, as variables. `redis` is its URL, with the password if it has one.
pub(super) fn environment(config: &Config, redis: &str) -> Vec<(&'static str, OsString)> {
    let access = &config.access;
    let files = [
        ("LEASEHOLD_REDIS_PASSWORD_FILE", &access.password),
        ("LEASEHOLD_REDIS_CA", &access.ca),
        ("LEASEHOLD_REDIS_CERT", &access.cert),
        ("LEASEHOLD_REDIS_KEY", &access.key),
    ];
    let mut all = vec![("LEASEHOLD_REDIS", OsString::from(redis))];
    let usual = Config::default();
    if config.prefix != usual.prefix {
        all.push(("LEASEHOLD_PREFIX", config.prefix.clone().into()));
        all.push(("LEASEHOLD_SESSION_PREFIX", config.session_prefix.clone().into()));
        all.push(("LEASEHOLD_LEADER_PREFIX", config.leader_prefix.clone().into()));
    }
    let files = files.into_iter().filter_map(|(name, file)| Some((name, file.clone()?.into())));
    all.extend(files);
    all
}

fn last_line(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES))).ok()?;
    let mut text = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|it| !it.trim().is_empty())?;
    Some(last.trim().to_owned())
}
