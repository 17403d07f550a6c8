//! The real binary, in a scene of its own: a Redis, a target, and instances of `leasehold run`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

pub use crate::paths::binary;
use crate::redis::RedisServer;
use crate::target::Target;
pub use crate::temp_dir::TempDir;

pub const TTL: Duration = Duration::from_secs(3);
/// R1: 3 % of the TTL and 100 ms.
pub const MARGIN: Duration = Duration::from_millis(190);
pub const INTERVAL: Duration = Duration::from_millis(200);
/// For what takes a moment, on a machine that is busy.
pub const SOON: Duration = Duration::from_secs(15);

const TIMINGS: [&str; 12] = [
    "--lease-ttl=3s",
    "--renew-interval=1s",
    "--heartbeat-ttl=3s",
    "--heartbeat-interval=1s",
    "--store-timeout=300ms",
    "--interval=200ms",
    "--timeout=2s",
    "--workers=4",
    "--light-after=1000",
    "--drain-timeout=3s",
    "--log-level=info",
    "--host-name=vm",
];

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits until `condition` holds; `describe` says what was there instead.
#[track_caller]
pub fn eventually(
    limit: Duration,
    what: &str,
    describe: impl Fn() -> String,
    mut condition: impl FnMut() -> bool,
) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}\n{}", describe());
        std::thread::sleep(ms(20));
    }
}

/// A Redis with sessions in it, and what they point at.
pub struct Scene {
    pub redis: RedisServer,
    pub target: Target,
    pub endpoints: Vec<String>,
}

impl Scene {
    /// With the sessions `e1`, `e2`, ….
    pub fn new(n_endpoints: usize) -> Self {
        let (redis, target) = (RedisServer::start(), Target::start());
        let endpoints = (1..=n_endpoints).map(|n| format!("e{n}")).collect();
        let scene = Self { redis, target, endpoints };
        scene.put_sessions();
        scene
    }

    pub fn put_sessions(&self) {
        let mut args = vec!["MSET".to_owned()];
        for id in &self.endpoints {
            args.extend([format!("session:{id}"), self.target.session(id).to_string()]);
        }
        if args.len() > 1 {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            assert_eq!(self.redis.cli(&args), "OK");
        }
    }

    /// Stores a session with some fields changed or added.
    pub fn put_session(&self, id: &str, fields: Value) {
        let mut session = self.target.session(id);
        for (key, value) in fields.as_object().unwrap() {
            session[key] = value.clone();
        }
        assert_eq!(self.redis.cli(&["SET", &format!("session:{id}"), &session.to_string()]), "OK");
    }

    /// Stores a session that is polled at another address of the target.
    pub fn put_session_at(&self, id: &str, address: SocketAddr) {
        self.put_session(id, json!({"address": address.to_string()}));
    }

    /// The first instance on this Redis: it need not wait out a hold-off.
    pub fn first(&self, args: &[&str]) -> Instance {
        let first = Instance::start(&self.redis, &[args, &["--new-fleet"]].concat());
        first.wait_for("event=daemon.ready");
        first
    }

    /// A further instance, ready.
    pub fn join(&self, args: &[&str]) -> Instance {
        let one = Instance::start(&self.redis, args);
        one.wait_for("event=daemon.ready");
        one
    }

    /// `n` instances that share everything, settled.
    pub fn fleet(&self, n: usize) -> Vec<Instance> {
        self.fleet_with(n, &[])
    }

    pub fn fleet_with(&self, n: usize, args: &[&str]) -> Vec<Instance> {
        let mut fleet = vec![self.first(args)];
        fleet.extend((1..n).map(|_| Instance::start(&self.redis, args)));
        self.wait_for_balance(&fleet.iter().collect::<Vec<_>>(), SOON);
        self.target.wait_for_polls(&self.endpoints, Instant::now(), SOON);
        fleet
    }

    /// Who holds what, in Redis.
    pub fn owners(&self) -> BTreeMap<String, String> {
        let script = "local r = {} for _, k in ipairs(redis.call('KEYS', 'poll:lease:*')) do \
                      r[#r + 1] = k r[#r + 1] = redis.call('GET', k) or '' end return r";
        let text = self.redis.cli(&["EVAL", script, "0"]);
        let lines: Vec<&str> = text.lines().collect();
        let name = |it: &str| it.trim_start_matches("poll:lease:").to_owned();
        lines.chunks_exact(2).map(|it| (name(it[0]), it[1].to_owned())).collect()
    }

    /// What `instance` holds.
    pub fn owned_by(&self, instance: &Instance) -> Vec<String> {
        let owners = self.owners().into_iter();
        owners.filter(|it| it.1 == instance.id()).map(|it| it.0).collect()
    }

    /// How many leases each holds.
    pub fn counts(&self, fleet: &[&Instance]) -> Vec<usize> {
        let owners = self.owners();
        fleet.iter().map(|it| owners.values().filter(|owner| **owner == it.id()).count()).collect()
    }

    /// Waits until everything is held and no two counts differ by more than one (G5).
    #[track_caller]
    pub fn wait_for_balance(&self, fleet: &[&Instance], limit: Duration) {
        let wanted = self.endpoints.len();
        eventually(
            limit,
            "balance",
            || format!("{:?}", self.owners()),
            || {
                let counts = self.counts(fleet);
                let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                counts.iter().sum::<usize>() == wanted && max - min <= 1
            },
        );
    }

    /// The fields of `poll:result:<endpoint>`.
    pub fn result(&self, endpoint: &str) -> BTreeMap<String, String> {
        let fields = self.redis.query(&["HGETALL", &format!("poll:result:{endpoint}")]);
        // Not by lines: a body may have several, and the fields come in any order.
        let fields: Vec<String> = redis::from_redis_value(fields.unwrap()).unwrap();
        fields.chunks_exact(2).map(|it| (it[0].clone(), it[1].clone())).collect()
    }
}

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<(Instant, String)>>,
    changed: Condvar,
}

/// A running `leasehold run`, killed on drop.
pub struct Instance {
    child: Child,
    log: Arc<Log>,
    status: Option<ExitStatus>,
}

impl Instance {
    pub fn start(redis: &RedisServer, args: &[&str]) -> Self {
        Self::start_at(&redis.url(), args)
    }

    /// By way of `url`.
    pub fn start_at(url: &str, args: &[&str]) -> Self {
        Self::spawn(Command::new(binary()).args(run_args(url, args)))
    }

    /// Any command that ends up as `leasehold run`.
    pub fn spawn(command: &mut Command) -> Self {
        Self::spawn_with_env(clean(command))
    }

    /// The same, with whatever is in the environment.
    pub fn spawn_with_env(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::<Log>::default();
        let (stderr, kept) = (child.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                kept.lines.lock().push((Instant::now(), line));
                kept.changed.notify_all();
            }
        });
        Self { child, log, status: None }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its instance id, as it says itself.
    #[track_caller]
    pub fn id(&self) -> String {
        let line = self.wait_for("event=daemon.started");
        field(&line, "instance").unwrap()
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lines.lock().iter().map(|it| it.1.clone()).collect()
    }

    /// Lines that contain all of `parts`.
    pub fn lines(&self, parts: &[&str]) -> Vec<String> {
        self.timed_lines(parts).into_iter().map(|it| it.1).collect()
    }

    /// With the moment at which each was read.
    pub fn timed_lines(&self, parts: &[&str]) -> Vec<(Instant, String)> {
        let lines = self.log.lines.lock();
        lines.iter().filter(|it| parts.iter().all(|part| it.1.contains(part))).cloned().collect()
    }

    /// When it first said this, waiting for it.
    #[track_caller]
    pub fn when(&self, text: &str) -> Instant {
        self.wait_for(text);
        self.timed_lines(&[text])[0].0
    }

    pub fn says(&self, text: &str) -> bool {
        !self.lines(&[text]).is_empty()
    }

    /// The first line that contains `text`, waiting for it.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        self.wait_for_line(SOON, text, |it| it.contains(text))
    }

    /// The first line after `since` that contains `text`, waiting for it.
    #[track_caller]
    pub fn wait_for_since(&self, since: Instant, text: &str) -> String {
        let deadline = Instant::now() + SOON;
        let mut lines = self.log.lines.lock();
        loop {
            let found = lines.iter().find(|it| it.0 >= since && it.1.contains(text));
            if let Some((_, line)) = found {
                return line.clone();
            }
            let timed_out = self.log.changed.wait_until(&mut lines, deadline).timed_out();
            assert!(!timed_out, "no {text:?} within {SOON:?}");
        }
    }

    #[track_caller]
    pub fn wait_for_line(
        &self,
        limit: Duration,
        what: &str,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> String {
        let deadline = Instant::now() + limit;
        let mut lines = self.log.lines.lock();
        loop {
            if let Some((_, line)) = lines.iter().find(|it| wanted(&it.1)) {
                return line.clone();
            }
            let timed_out = self.log.changed.wait_until(&mut lines, deadline).timed_out();
            assert!(!timed_out, "no {what:?} within {limit:?}");
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// SIGTERM, and what came of it.
    #[track_caller]
    pub fn term(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let mut status = self.status;
        eventually(SOON, "the end of the process", String::new, || {
            status = status.or_else(|| child.try_wait().unwrap());
            status.is_some()
        });
        self.status = status;
        status.unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn kill9(&mut self) {
        drop(self.child.kill());
        self.status = self.child.wait().ok();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            let told = |it: &&String| !it.contains("lease.renewed");
            let lines: Vec<String> = self.log().iter().filter(told).cloned().collect();
            let last = &lines[lines.len().saturating_sub(60)..];
            eprintln!("--- log of {}\n{}", self.child.id(), last.join("\n"));
        }
    }
}

/// `run` with short timings; a later option wins.
pub fn run_args(url: &str, args: &[&str]) -> Vec<String> {
    let mut all = vec!["run".to_owned(), format!("--redis={url}")];
    all.extend(TIMINGS.iter().chain(args).map(|it| (*it).to_owned()));
    all
}

/// Without what the surroundings set.
fn clean(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    // No settings of a service on this host.
    command.env_remove("RUNTIME_DIRECTORY").env("LEASEHOLD_SERVICE_SETTINGS", "")
}

/// Runs the binary to its end, which must come soon.
pub fn leasehold<S: AsRef<OsStr>>(args: &[S]) -> Output {
    leasehold_with(args, &[])
}

/// A command that asks this server.
pub fn run(redis: &RedisServer, args: &[&str]) -> Output {
    let redis = format!("--redis={}", redis.url());
    leasehold(&[args, &[redis.as_str()]].concat())
}

/// What a command that succeeded has printed.
#[track_caller]
pub fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The running test binary again, with one test: `name` in the module of which `module_path!()` is `module`. The test
/// has to see by its environment that it is the second run.
pub fn alone(module: &str, name: &str) -> Command {
    let (_binary, module) = module.split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{name}")]);
    command
}

/// With variables in its environment.
pub fn leasehold_with<S: AsRef<OsStr>>(args: &[S], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(binary());
    clean(command.args(args)).envs(env.iter().copied()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Read along: more than a pipe holds would keep it from ending.
    let stdout = read_to_end(child.stdout.take().unwrap());
    let stderr = read_to_end(child.stderr.take().unwrap());
    let deadline = Instant::now() + SOON;
    let mut late = false;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            late = true;
            child.kill().unwrap();
        }
        std::thread::sleep(ms(10));
    };
    let output = Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() };
    assert!(!late, "it does not end: {output:?}");
    output
}

fn read_to_end(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// The value of `key` in a log line.
pub fn field(line: &str, key: &str) -> Option<String> {
    let start = line.find(&format!(" {key}="))? + key.len() + 2;
    let rest = &line[start..];
    if let Some(quoted) = rest.strip_prefix('"') {
        let mut end = 0;
        let bytes = quoted.as_bytes();
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        return serde_json::from_str(&rest[..end + 2]).ok();
    }
    Some(rest.split(' ').next().unwrap_or("").to_owned())
}
