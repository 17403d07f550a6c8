//! A Redis server of one test's own.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

static DIRECTORIES: AtomicU32 = AtomicU32::new(0);

/// A fresh, empty directory.
fn temp_dir(what: &str) -> PathBuf {
    let n = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("leasehold-{what}-{}-{n}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Killed on drop.
pub struct RedisServer {
    child: Option<Child>,
    port: u16,
    dir: PathBuf,
}

impl RedisServer {
    pub fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { child: None, port, dir: temp_dir("redis") };
        server.restart();
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// What redis-cli prints, without the last newline.
    pub fn cli(&self, args: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.arg("-p").arg(self.port.to_string()).args(args);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    pub fn pause(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
    }

    pub fn resume(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Starts it again on the same port, with what `save` has left on disk.
    pub fn restart(&mut self) {
        self.kill();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--protected-mode", "no", "--enable-debug-command", "yes"])
            .args(["--port", &self.port.to_string()])
            .args(["--dir", self.dir.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < deadline, "redis-server does not listen on {}", self.port);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn save(&self) {
        assert_eq!(self.cli(&["SAVE"]), "OK");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.as_ref().unwrap().id() as i32)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
