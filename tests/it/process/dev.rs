//! `leasehold dev` as a newcomer meets it: everything is there at once, and nothing is left behind, however it ends.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use serde_json::Value;

use testkit::paths::binary;
use testkit::process::{SOON, TempDir, eventually};
use testkit::redis::RedisServer;

/// A `leasehold dev` whose processes and files are all found again, because `TMPDIR` is a directory of its own.
struct Dev {
    child: Child,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    tmp: TempDir,
}

fn command(tmp: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    // As in a shell that has pasted the line of an earlier one.
    command
        .arg("dev")
        .args(args)
        .env("TMPDIR", tmp)
        .env("LEASEHOLD_REDIS", "redis://127.0.0.1:1/0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Dev {
    fn start(args: &[&str]) -> Self {
        let tmp = TempDir::new();
        let mut child = command(tmp.path(), args).spawn().unwrap();
        let said = Arc::<Mutex<String>>::default();
        let (stdout, kept) = (child.stdout.take().unwrap(), Arc::clone(&said));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                kept.lock().push_str(&format!("{line}\n"));
            }
        });
        Self { child, said, reader: Some(reader), tmp }
    }

    /// All commands are printed, so all endpoints are polled.
    fn ready(args: &[&str]) -> Self {
        let dev = Self::start(args);
        dev.wait_for("leasehold lead job");
        dev
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        let all = || self.said.lock().clone();
        eventually(SOON, text, all, || self.said.lock().contains(text));
    }

    /// What stands behind `name` in the line that is to be pasted.
    fn variable(&self, name: &str) -> Option<String> {
        let said = self.said.lock();
        let line = said.lines().find(|it| it.trim_start().starts_with("export "))?;
        let value = line.split_whitespace().find_map(|it| it.strip_prefix(&format!("{name}=")));
        value.map(String::from)
    }

    /// One of the printed commands, with the line pasted before it.
    fn paste(&self, line: &str) -> Output {
        let said = self.said.lock().clone();
        let export = said.lines().find(|it| it.trim_start().starts_with("export ")).unwrap();
        let script = format!("{export}\n{line}\n");
        Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap()
    }

    fn status(&self) -> Value {
        let output = self.paste("leasehold status --json");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The command that it prints, to be killed by.
    fn pid_of_vm1(&self) -> i32 {
        let said = self.said.lock();
        let line = said.lines().find_map(|it| it.trim_start().strip_prefix("kill -9 ")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Every process it started, itself included: command lines by process id.
    fn processes(&self) -> Vec<(i32, String)> {
        let mine = format!("TMPDIR={}", self.tmp.path().display());
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
        let is_mine = |pid: &i32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            // redis-server writes its title over its environment, and works in its directory.
            let works_in = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            environ.split(|it| *it == 0).any(|it| it == mine.as_bytes())
                || works_in.starts_with(self.tmp.path())
        };
        let words = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = |pid| String::from_utf8_lossy(&words(pid)).replace('\0', " ");
        pids.filter(is_mine).map(|it| (it, line(it))).collect()
    }

    /// The process whose command line has both of these words.
    fn process(&self, program: &str, word: &str) -> i32 {
        let all = self.processes();
        let has = |line: &str, wanted: &str| line.split(' ').any(|it| it.ends_with(wanted));
        let found = all.iter().find(|it| has(&it.1, program) && has(&it.1, word));
        found.unwrap_or_else(|| panic!("no process {program} {word}: {all:?}")).0
    }

    #[track_caller]
    fn all_is_gone(&mut self) {
        let _ = self.child.wait();
        let left = || format!("{:?} {:?}", self.processes(), files(self.tmp.path()));
        eventually(SOON, "the end of everything", left, || {
            self.processes().is_empty() && files(self.tmp.path()).is_empty()
        });
    }

    fn signal(&self, signal: Signal) {
        send(i32::try_from(self.child.id()).unwrap(), signal);
    }

    #[track_caller]
    fn end(mut self) -> String {
        self.signal(Signal::SIGINT);
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        let said = self.said.lock().clone();
        assert!(status.success(), "{status}: {said}");
        self.all_is_gone();
        said
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn files(dir: &Path) -> Vec<String> {
    let all = fs::read_dir(dir).unwrap().flatten();
    all.map(|it| it.file_name().to_string_lossy().into_owned()).collect()
}

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn live(status: &Value) -> usize {
    status["instances"].as_array().unwrap().iter().filter(|it| it["alive"] != false).count()
}

/// Also although the shell has pasted the line of a fleet that is gone.
#[test]
fn everything_printed_works_and_an_interrupt_removes_all_of_it() {
    let dev = Dev::ready(&[]);
    let status = dev.status();
    assert_eq!(status["endpoints"].as_array().unwrap().len(), 12, "{status}");
    assert_eq!(live(&status), 3, "{status}");
    let lines: Vec<String> = dev.said.lock().lines().map(String::from).collect();
    let commands: Vec<&str> =
        lines.iter().filter_map(|it| it.split(" # ").next()).map(str::trim).collect();
    for line in ["leasehold explain web-1", "leasehold drain vm1", "leasehold undrain vm1"] {
        assert!(commands.contains(&line), "{commands:?}");
        let output = dev.paste(line);
        assert!(output.status.success(), "{line}: {output:?}");
    }
    for (line, shown) in [("leasehold top", "--refresh"), ("leasehold watch", "ENDPOINT")] {
        assert!(commands.contains(&line), "{commands:?}");
        let help = dev.paste(&format!("{line} --help"));
        assert!(String::from_utf8_lossy(&help.stdout).contains(shown), "{help:?}");
    }
    let led = dev.paste("leasehold lead job -- true");
    assert!(led.status.success(), "{led:?}");
    let said = dev.end();
    assert!(said.ends_with("everything has ended and is removed\n"), "{said}");
}

/// However it ends: no `Drop` runs here.
#[test]
fn a_kill_of_dev_itself_removes_all_of_it() {
    let mut dev = Dev::ready(&[]);
    assert!(dev.processes().len() >= 9, "{:?}", dev.processes());
    dev.signal(Signal::SIGKILL);
    dev.all_is_gone();
}

#[test]
fn a_killed_part_is_started_again_and_all_ends_with_dev_all_the_same() {
    let dev = Dev::ready(&[]);
    send(dev.pid_of_vm1(), Signal::SIGKILL);
    dev.wait_for("vm1 was killed (signal 9); it starts again in 10 s");
    let owned = |status: &Value| {
        let all = status["endpoints"].as_array().unwrap();
        all.iter()
            .filter(|it| it["owner"].as_str().is_some_and(|it| !it.starts_with("vm1-")))
            .count()
    };
    eventually(SOON, "a takeover", || dev.status().to_string(), || owned(&dev.status()) == 12);
    // The server comes back with every session, and the fleet goes on.
    let is_server = |it: &&(i32, String)| it.1.starts_with("redis-server ");
    let server = dev.processes().iter().find(is_server).map(|it| it.0).unwrap();
    send(server, Signal::SIGKILL);
    dev.wait_for("redis was killed (signal 9); it starts again in 1 s");
    dev.wait_for("redis is back");
    dev.wait_for("vm1 is back");
    let shown = || format!("{:?}", dev.paste("leasehold status"));
    eventually(SOON, "three instances", shown, || {
        dev.paste("leasehold status").status.success() && live(&dev.status()) == 3
    });
    assert_eq!(dev.status()["endpoints"].as_array().unwrap().len(), 12);
    // A supervisor takes its instance along.
    let vm2 = dev.process("poll-supervisor", "vm2");
    send(vm2, Signal::SIGKILL);
    dev.wait_for("vm2 was left without its supervisor");
    dev.end();
}

#[test]
fn data_that_is_kept_is_there_again_and_used_by_one_at_a_time() {
    let dir = TempDir::new();
    let kept = dir.path().join("kept");
    let data = format!("--data={}", kept.display());
    let dev = Dev::ready(&[&data, "--instances=2"]);
    let added = dev.paste("leasehold sessions add 127.0.0.1:9 --id mine");
    assert!(added.status.success(), "{added:?}");
    let second = command(dir.path(), &[&data]).output().unwrap();
    let why = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(why.contains("another leasehold dev uses"), "{why}");
    let said = dev.end();
    assert!(said.contains(&format!("{} is kept", kept.display())), "{said}");
    let dev = Dev::ready(&[&data, "--instances=2"]);
    assert_eq!(dev.status()["endpoints"].as_array().unwrap().len(), 13);
    assert_eq!(live(&dev.status()), 2);
    // The samples are those of the target that runs now.
    let polled = || {
        let status = dev.status();
        let all = status["endpoints"].as_array().unwrap();
        all.iter().any(|it| it["id"] == "web-1" && it["state"] == "ok")
    };
    eventually(SOON, "a good poll of web-1", || dev.status().to_string(), polled);
    dev.end();
}

#[test]
fn the_sessions_of_a_file_are_polled_instead() {
    let dir = TempDir::new();
    let file = dir.path().join("sessions.jsonl");
    fs::write(&file, "{\"id\":\"mine\",\"address\":\"127.0.0.1:9\"}\n").unwrap();
    let dev = Dev::ready(&[&format!("--sessions={}", file.display()), "--instances=1"]);
    let status = dev.status();
    assert_eq!(status["endpoints"][0]["id"], "mine", "{status}");
    dev.end();
    fs::write(&file, "{\"id\":\"mine\"}\n").unwrap();
    let bad = command(dir.path(), &["--sessions", file.to_str().unwrap()]).output().unwrap();
    let why = String::from_utf8(bad.stderr).unwrap();
    assert!(why.contains("line 1: ") && bad.status.code() == Some(1), "{why}");
}

/// Somebody may poll in earnest on it.
#[test]
fn on_ones_own_redis_it_keeps_to_its_prefixes_and_removes_them() {
    let redis = RedisServer::start();
    redis.cli(&["SET", "session:real", "{}"]);
    redis.cli(&["SET", "leasehold-devil", "stays"]);
    let dev = Dev::ready(&["--redis", &redis.url(), "--instances=2"]);
    assert_eq!(dev.variable("LEASEHOLD_PREFIX").as_deref(), Some("leasehold-dev"));
    assert_eq!(live(&dev.status()), 2);
    assert!(dev.paste("leasehold lead job -- true").status.success());
    assert_eq!(redis.cli(&["EXISTS", "poll:epoch", "leader:epoch"]), "0");
    assert_eq!(redis.cli(&["EXISTS", "leasehold-dev:epoch", "leasehold-dev-leader:epoch"]), "2");
    let tmp = TempDir::new();
    let second = command(tmp.path(), &["--redis", &redis.url()]).output().unwrap();
    let why = String::from_utf8(second.stderr).unwrap();
    assert!(why.contains("2 instances of another leasehold dev run on"), "{why}");
    dev.end();
    // Also of one that is told to end before it was ready.
    let early = Dev::start(&["--redis", &redis.url(), "--instances=2"]);
    let keys = || redis.cli(&["KEYS", "leasehold-dev:*"]);
    eventually(SOON, "its first sessions", keys, || keys().contains("session"));
    early.end();
    let mut left: Vec<String> = redis.cli(&["KEYS", "*"]).lines().map(String::from).collect();
    left.sort();
    assert_eq!(left, ["leasehold-devil", "session:real"]);
}

#[test]
fn what_cannot_work_is_said_and_leaves_nothing() {
    let tmp = TempDir::new();
    let failed = |args: &[&str], path: Option<&str>| {
        let mut command = command(tmp.path(), args);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let mut child = command.spawn().unwrap();
        let mut why = String::new();
        child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        (child.wait().unwrap().code(), why)
    };
    let (code, why) = failed(&[], Some("/nowhere"));
    assert_eq!(code, Some(1));
    assert!(why.contains("neither redis-server nor valkey-server on PATH"), "{why}");
    assert!(why.contains("apt-get install redis-server"), "{why}");
    let (code, why) = failed(&["--redis", "redis+cluster://127.0.0.1:1"], None);
    assert_eq!(
        (code, why.as_str()),
        (
            Some(2),
            "leasehold: dev does not work on a cluster: name one server, or leave --redis out\n"
        )
    );
    let (code, why) = failed(&["--instances", "21"], None);
    assert!(code == Some(2) && why.contains("more than 20"), "{why}");
    let (code, why) = failed(&["--data", "/proc/nowhere"], None);
    assert!(code == Some(1) && why.contains("cannot use the directory /proc/nowhere"), "{why}");
    assert_eq!(files(tmp.path()), [""; 0]);
}
