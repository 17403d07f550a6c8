//! A real Redis of its own for every test that asks for one, gone when the test ends.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::{Connection, Value};

const START_WITHIN: Duration = Duration::from_secs(20);

/// Of every user that [`RedisServer::give_rule`] makes; found nowhere else.
pub const USER_PASSWORD: &str = "hunter2-of-nobody-else";

/// Which server the tests run on: the installed one, or another (`make servers`).
static SERVER: LazyLock<String> = LazyLock::new(|| {
    std::env::var("LEASEHOLD_TEST_SERVER").unwrap_or_else(|_| "redis-server".into())
});
/// The program that servers and sentinels are.
pub fn program() -> &'static str {
    &SERVER
}

/// The first number of its version.
static MAJOR: LazyLock<u32> = LazyLock::new(|| {
    let told = Command::new(&*SERVER).arg("--version").output();
    let told = told.expect("redis-server is not installed: run `make test`, which installs it");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let version = told.split(" v=").nth(1).and_then(|it| it.split('.').next()?.parse().ok());
    version.unwrap_or_else(|| panic!("{} tells no version: {told}", *SERVER))
});

/// Whether its users can be allowed to read a key and not to write it: Redis 7.0 or later.
pub fn tells_reading() -> bool {
    *MAJOR >= 7
}

/// A private redis-server on loopback, in a directory of its own.
pub struct RedisServer {
    child: Child,
    port: u16,
    dir: PathBuf,
    options: Vec<String>,
    env: Vec<(String, String)>,
    /// What [`Self::cli`] logs in with.
    password: Option<String>,
}

impl RedisServer {
    /// An empty server that answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// One with further options, e.g. `["--requirepass", "secret"]`.
    pub fn start_with(options: &[&str]) -> Self {
        Self::start_in(&[], options)
    }

    /// One with variables in its environment, too.
    pub fn start_in(env: &[(&str, &str)], options: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir =
            std::env::temp_dir().join(format!("leasehold-redis-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let options: Vec<String> = options.iter().map(|&it| it.into()).collect();
        let password = options.iter().position(|it| it == "--requirepass");
        let password = password.map(|at| options[at + 1].clone());
        let port = free_port();
        let env: Vec<_> = env.iter().map(|it| (it.0.to_owned(), it.1.to_owned())).collect();
        let child = spawn(port, &dir, &options, &env);
        let mut server = Self { child, port, dir, options, env, password };
        // Between asking the OS for a free port and using it, another process may have taken it.
        for _ in 0..5 {
            if server.is_ready() {
                return server;
            }
            server.port = free_port();
            server.child = spawn(server.port, &server.dir, &server.options, &server.env);
        }
        panic!("redis-server does not start; its log:\n{}", server.log());
    }

    /// `redis://127.0.0.1:<port>/0`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// The same server over its unix socket.
    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps what it saves.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a command and shows the reply as redis-cli would: `(nil)`, numbers and texts as they are,
    /// lists one item a line, an error by its code and text.
    pub fn cli(&self, command: &[&str]) -> String {
        match self.query(command) {
            Ok(value) => shown(&value),
            Err(error) => {
                format!("{} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or(""))
            }
        }
    }

    /// Runs a command of any bytes.
    pub fn query<T: AsRef<[u8]>>(&self, command: &[T]) -> redis::RedisResult<Value> {
        let mut cmd = redis::Cmd::new();
        for part in command {
            cmd.arg(part.as_ref());
        }
        cmd.query(&mut self.connect()?)
    }

    /// A connection to ask with, or to subscribe on.
    pub fn connect(&self) -> redis::RedisResult<Connection> {
        let password = self.password.as_deref().unwrap_or("");
        let url = format!("redis://:{password}@127.0.0.1:{}/0", self.port);
        let client = redis::Client::open(url)?;
        let connection = client.get_connection_with_timeout(Duration::from_secs(5))?;
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(connection)
    }

    /// Makes a user with just the rights that docs/redis.md gives it, and tells its URL.
    pub fn give_rule(&self, user: &str) -> String {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/redis.md"));
        let rule = page.split(&format!("redis-cli ACL SETUSER {user}")).nth(1).unwrap();
        let rule = rule.split("```").next().unwrap().replace(['\'', '\\'], " ");
        let rule = rule.replace(">PASSWORD", &format!(">{USER_PASSWORD}"));
        // As the page says itself.
        let rule = if tells_reading() { rule } else { rule.replace("%R~", "~") };
        let mut command = vec!["ACL", "SETUSER", user];
        command.extend(rule.split_whitespace());
        assert_eq!(self.cli(&command), "OK");
        format!("redis://{user}:{USER_PASSWORD}@127.0.0.1:{}/0", self.port)
    }

    /// Hangs: connections are accepted by the kernel, nothing answers (SIGSTOP).
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Goes on, and executes what was sent meanwhile (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Dies at once (SIGKILL); what was not saved is lost.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Writes everything to disk, for [`Self::restart`].
    pub fn save(&self) {
        assert_eq!(self.cli(&["SAVE"]), "OK");
    }

    /// Kills it if it runs, and starts it on the same port from what was last saved.
    pub fn restart(&mut self) {
        let began = Instant::now();
        self.kill();
        while began.elapsed() < START_WITHIN {
            self.child = spawn(self.port, &self.dir, &self.options, &self.env);
            if self.is_ready() {
                return;
            }
        }
        panic!("redis-server does not start again; its log:\n{}", self.log());
    }

    /// As [`Self::restart`], but from nothing.
    pub fn restart_empty(&mut self) {
        self.kill();
        let _ = fs::remove_file(self.dir.join("dump.rdb"));
        self.restart();
    }

    pub fn flushall(&self) {
        assert_eq!(self.cli(&["FLUSHALL"]), "OK");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap());
        kill(pid, signal).unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("redis.sock")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Whether this very process, and no other on that port, came to answer (or says LOADING).
    fn is_ready(&mut self) -> bool {
        let began = Instant::now();
        let me = format!("process_id:{}\r", self.pid());
        while began.elapsed() < START_WITHIN {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if self.cli(&["INFO", "server"]).contains(&me) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("redis-server does not answer on port {}; its log:\n{}", self.port, self.log());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Waits until `condition` holds; after ten seconds fails with what `otherwise` says.
pub fn eventually(mut condition: impl FnMut() -> bool, otherwise: impl Fn() -> String) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(10), "{}", otherwise());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A port without a listener, below the ephemeral range: the kernel must not give the port of a server that is down to a
/// client that connects.
pub fn free_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Two runs at a time begin far from each other.
        let place = std::process::id().wrapping_mul(331).wrapping_add(number) % 22_000;
        let port = 10_000 + u16::try_from(place).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn spawn(port: u16, dir: &Path, options: &[String], env: &[(String, String)]) -> Child {
    let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    let mut command = Command::new(&*SERVER);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
    command.arg("--dir").arg(dir).arg("--unixsocket").arg(dir.join("redis.sock"));
    command.args(["--save", "", "--appendonly", "no"]);
    if *MAJOR >= 7 {
        // Before that it needs no leave.
        command.args(["--enable-debug-command", "yes"]);
    }
    command.args(options).envs(env.iter().cloned()).stdin(Stdio::null());
    let spawned = command.stdout(log.try_clone().unwrap()).stderr(log).spawn();
    spawned.expect("a server that told its version starts")
}

fn shown(value: &Value) -> String {
    match value {
        Value::Nil => "(nil)".into(),
        Value::Okay => "OK".into(),
        Value::Int(it) => it.to_string(),
        Value::SimpleString(it) => it.clone(),
        Value::BulkString(it) => String::from_utf8_lossy(it).into_owned(),
        Value::Array(it) => it.iter().map(shown).collect::<Vec<_>>().join("\n"),
        other => format!("{other:?}"),
    }
}
