//! A running `leasehold agent`, and clients that speak its protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::clock::{BootClock, Clock};

use crate::paths::binary;
use crate::process::{Instance, SOON, TempDir, eventually, ms};
use crate::redis::RedisServer;

/// An agent with short timings, its socket in a directory of its own.
pub struct Agent {
    pub process: Instance,
    dir: TempDir,
}

impl Agent {
    /// The first agent on this Redis.
    pub fn first(redis: &RedisServer, args: &[&str]) -> Self {
        Self::start(redis, &[&["--new-fleet"], args].concat())
    }

    /// An agent that is listening. A later option wins.
    pub fn start(redis: &RedisServer, args: &[&str]) -> Self {
        Self::start_at(&redis.url(), args)
    }

    /// By way of `url`.
    pub fn start_at(url: &str, args: &[&str]) -> Self {
        let dir = TempDir::new();
        let process = Self::spawn(url, &dir.path().join("agent.sock"), args);
        process.wait_for("event=agent.listening");
        Self { process, dir }
    }

    /// The process alone.
    pub fn spawn(url: &str, socket: &Path, args: &[&str]) -> Instance {
        let mut command = Command::new(binary());
        command.args(["agent", "--lease-ttl=3s", "--store-timeout=300ms", "--host-name=vm"]);
        command.args(["--drain-timeout=3s", "--log-level=debug"]);
        command.arg(format!("--socket={}", socket.display())).arg(format!("--redis={url}"));
        Instance::spawn(command.args(args))
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }

    pub fn connect(&self) -> Client {
        Client::connect(&self.socket())
    }

    /// A client in a process of its own.
    pub fn process_client(&self) -> ProcessClient {
        ProcessClient::start(&self.socket())
    }
}

/// The time of `until_ms`.
pub fn boot_ms() -> u64 {
    BootClock.now().as_nanos() / 1_000_000
}

/// The number behind `key=` in a line of the agent.
#[track_caller]
pub fn number(line: &str, key: &str) -> u64 {
    let found = line.split(' ').find_map(|it| it.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {key} in {line:?}")).parse().unwrap()
}

/// A connection to an agent.
pub struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    /// What was pushed and not asked for yet.
    pub pushes: Vec<String>,
}

impl Client {
    #[track_caller]
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader, pushes: Vec::new() }
    }

    /// Sends bytes; whether they could be sent.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub fn say(&mut self, line: &str) {
        assert!(self.send(format!("{line}\n").as_bytes()), "cannot send {line}");
    }

    /// The next line, push or answer; `None` at the end of the connection.
    #[track_caller]
    pub fn line(&mut self) -> Option<String> {
        self.line_within(SOON).unwrap_or_else(|| panic!("no line; pushed: {:?}", self.pushes))
    }

    /// The outer `None`: there was none in this time.
    pub fn line_within(&mut self, limit: Duration) -> Option<Option<String>> {
        self.stream.set_read_timeout(Some(limit)).unwrap();
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Some(None),
            Ok(_) => Some(Some(line.trim_end().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            Err(_) => Some(None), // reset
        }
    }

    /// The answer to the oldest line that has none.
    #[track_caller]
    pub fn answer(&mut self) -> String {
        loop {
            let line = self.line().expect("the agent has ended the connection");
            if !line.starts_with('!') {
                return line;
            }
            self.pushes.push(line);
        }
    }

    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.answer()
    }

    /// Asks until the answer begins with `wanted`.
    #[track_caller]
    pub fn ask_until(&mut self, line: &str, wanted: &str) -> String {
        let mut told = String::new();
        let deadline = Instant::now() + SOON;
        while !told.starts_with(wanted) {
            assert!(Instant::now() < deadline, "{line} is answered with {told}");
            std::thread::sleep(ms(10));
            told = self.ask(line);
        }
        told
    }

    /// The first push that begins with `start`, waiting for it. Those before it are gone.
    #[track_caller]
    pub fn pushed(&mut self, start: &str) -> String {
        while !self.pushes.is_empty() {
            let push = self.pushes.remove(0);
            if push.starts_with(start) {
                return push;
            }
        }
        let mut passed = Vec::new();
        loop {
            let told = self.line_within(SOON);
            let line = told.unwrap_or_else(|| panic!("no {start}, but {passed:?}"));
            let line = line.unwrap_or_else(|| panic!("ended before {start}, after {passed:?}"));
            if line.starts_with(start) {
                return line;
            }
            passed.push(line);
        }
    }

    /// Everything up to the end of the connection.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<String> {
        let mut lines = std::mem::take(&mut self.pushes);
        while let Some(line) = self.line() {
            lines.push(line);
        }
        lines
    }

    /// Sends nothing more.
    pub fn end_sending(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

/// `leasehold connect`: a client that can be killed.
pub struct ProcessClient {
    pub child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl ProcessClient {
    fn start(socket: &Path) -> Self {
        let mut command = Command::new(binary());
        command.arg("connect").arg("--socket").arg(socket);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        loop {
            answer.clear();
            assert!(self.stdout.read_line(&mut answer).unwrap() > 0, "no answer to {line}");
            if !answer.starts_with('!') {
                return answer.trim_end().to_owned();
            }
        }
    }

    /// Ends stdin; all that is told after that.
    pub fn finish(mut self) -> String {
        drop(self.stdin.take());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).unwrap();
    }
}

impl Drop for ProcessClient {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits until Redis has no lease of this name.
#[track_caller]
pub fn wait_until_free(redis: &RedisServer, name: &str, limit: Duration) {
    let key = format!("poll:lease:{name}");
    let owner = || redis.cli(&["GET", &key]);
    eventually(limit, "a free lease", owner, || owner() == "(nil)");
}
