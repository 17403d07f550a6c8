//! Hosts that stand for a role, and the record of what ran on the leader.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::{Instance, SOON, TempDir, binary, eventually};
use crate::redis::RedisServer;

pub const TTL: Duration = Duration::from_secs(3);
/// More than the work needs between two lines, on a machine that is busy.
pub const PACE: Duration = Duration::from_millis(300);

/// Writes `<term> <pid> <nanoseconds>` again and again, to the file that is its argument.
const WORK: &str =
    r#"while :; do echo "$LEASEHOLD_TERM $$ $(date +%s%N)" >>"$0"; sleep 0.02; done"#;

/// One life of the command.
#[derive(Clone, Debug)]
pub struct Life {
    pub term: u64,
    pub pid: u32,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// A Redis, and a file that the leader's command writes to.
pub struct Hosts {
    pub redis: RedisServer,
    dir: TempDir,
}

impl Hosts {
    pub fn new() -> Self {
        let hosts = Self::without_warm_up();
        hosts.end_hold_off();
        hosts
    }

    /// The first host has to say `--new-fleet`, or to wait out a hold-off.
    pub fn without_warm_up() -> Self {
        Self { redis: RedisServer::start(), dir: TempDir::new() }
    }

    /// An earlier fleet is long gone: roles that are new need not wait.
    pub fn end_hold_off(&self) {
        self.end_hold_off_at(&self.redis.url());
    }

    /// The same by way of `url`.
    pub fn end_hold_off_at(&self, url: &str) {
        let args = ["once", "warm-up", "--new-fleet", "--", "true"];
        let redis = format!("--redis={url}");
        let mut all: Vec<&str> = args.to_vec();
        all.insert(2, &redis);
        let done = crate::process::leasehold(&all);
        assert!(done.status.success(), "{done:?}");
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A host that stands for `job` and does the work.
    pub fn lead(&self, args: &[&str]) -> Instance {
        self.lead_at(&self.redis.url(), args)
    }

    /// By way of `url`.
    pub fn lead_at(&self, url: &str, args: &[&str]) -> Instance {
        self.work(Path::new(binary()), url, args)
    }

    /// The same with another build of leasehold.
    pub fn lead_by(&self, program: &Path, args: &[&str]) -> Instance {
        self.work(program, &self.redis.url(), args)
    }

    fn work(&self, program: &Path, url: &str, args: &[&str]) -> Instance {
        let record = self.file("record");
        Self::stand(program, url, args, &["sh", "-c", WORK, record.to_str().unwrap()])
    }

    /// With a command of the caller's.
    pub fn lead_with(&self, url: &str, args: &[&str], command: &[&str]) -> Instance {
        Self::stand(Path::new(binary()), url, args, command)
    }

    fn stand(program: &Path, url: &str, args: &[&str], command: &[&str]) -> Instance {
        let mut lead = Command::new(program);
        lead.args(["lead", "job", &format!("--redis={url}"), "--lease-ttl=3s"]);
        Instance::spawn(lead.args(args).arg("--").args(command))
    }

    /// Every life of the command so far, by term.
    pub fn lives(&self) -> Vec<Life> {
        let text = fs::read_to_string(self.file("record")).unwrap_or_default();
        let mut lives: Vec<Life> = Vec::new();
        for line in text.lines() {
            let numbers: Vec<u64> = line.split(' ').filter_map(|it| it.parse().ok()).collect();
            let [term, pid, at] = numbers[..] else { continue };
            let pid = u32::try_from(pid).unwrap();
            match lives.iter_mut().find(|it| (it.term, it.pid) == (term, pid)) {
                Some(life) => life.last_ns = life.last_ns.max(at),
                None => lives.push(Life { term, pid, first_ns: at, last_ns: at }),
            }
        }
        lives.sort_by_key(|it| (it.term, it.first_ns));
        lives
    }

    /// Waits until the command has lived more than `n` times, and for the last of them.
    #[track_caller]
    pub fn wait_for_life(&self, n: usize) -> Life {
        eventually(
            SOON,
            "another life of the command",
            || format!("{:?}", self.lives()),
            || self.lives().len() > n,
        );
        self.lives().pop().unwrap()
    }

    /// Waits until the command is at it again, after `since`.
    #[track_caller]
    pub fn wait_for_work(&self, since: Instant) {
        let before = wall_ns() - u64::try_from(since.elapsed().as_nanos()).unwrap();
        eventually(
            SOON,
            "work",
            || format!("{:?}", self.lives()),
            || self.lives().last().is_some_and(|it| it.last_ns > before),
        );
    }

    /// Nobody worked before everybody earlier had ended; how long nobody did, at most.
    #[track_caller]
    pub fn longest_vacancy(&self) -> Duration {
        let lives = self.lives();
        let gap = |pair: &[Life]| {
            assert!(pair[0].last_ns < pair[1].first_ns, "two at once: {pair:?}");
            Duration::from_nanos(pair[1].first_ns - pair[0].last_ns)
        };
        lives.windows(2).map(gap).max().unwrap_or_default()
    }

    /// Who leads, as the store has it.
    pub fn leader(&self) -> String {
        self.redis.cli(&["GET", "leader:job"])
    }
}

/// The time of day, as the commands write it down.
pub fn wall_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

/// Whether there is such a process, and no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|it| !it.is_empty() && !it.starts_with('Z'))
}

/// Waits until there is no such process any more.
#[track_caller]
pub fn wait_for_death(pid: u32) {
    let what = format!("the end of {pid}");
    eventually(SOON, &what, String::new, || !is_alive(pid));
}

/// The supervisor of the command of a host.
#[track_caller]
pub fn supervisor_of(host: &Instance) -> u32 {
    let mut found = None;
    eventually(SOON, "a supervisor", String::new, || {
        let tasks = fs::read_dir(format!("/proc/{}/task", host.pid())).unwrap().flatten();
        let lists = tasks.map(|it| fs::read_to_string(it.path().join("children")));
        let children: String = lists.map(Result::unwrap_or_default).collect();
        let is_one = |it: &u32| {
            let line = fs::read(format!("/proc/{it}/cmdline")).unwrap_or_default();
            line.starts_with(b"command-supervisor\0")
        };
        found = children.split_whitespace().filter_map(|it| it.parse().ok()).find(is_one);
        found.is_some()
    });
    found.unwrap()
}

pub fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// Kills a host together with its supervisor: nobody is left who could give the role back before its TTL is over.
#[track_caller]
pub fn kill_with_supervisor(host: &mut Instance) {
    let supervisor = supervisor_of(host);
    // The other way round, the host would see the end of its command and give the role up itself, or the supervisor would.
    host.freeze();
    send(supervisor, Signal::SIGKILL);
    host.kill9();
}

/// Which of these leads.
#[track_caller]
pub fn leading(hosts: &Hosts, fleet: &[Instance]) -> usize {
    let mut found = None;
    eventually(
        SOON,
        "a leader",
        || hosts.leader(),
        || {
            let leader = hosts.leader();
            found = fleet.iter().position(|it| it.says(&format!("instance={leader} ")));
            found.is_some()
        },
    );
    found.unwrap()
}
