//! A private Redis: a free loopback port, a directory of its own, both gone when dropped.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::thread::Stop;
use redis::{Client, Connection};

/// How long a server may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running redis-server. Writes a snapshot only when asked to.
pub struct PrivateRedis {
    pub dir: PathBuf,
    pub port: u16,
    child: Child,
}

impl PrivateRedis {
    /// Starts a server and waits until it answers.
    pub fn start(name: &str, until: &Stop) -> io::Result<Self> {
        let dir = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&dir)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let child = spawn(&dir, port).inspect_err(|_| drop(fs::remove_dir(&dir)))?;
        let redis = Self { dir, port, child };
        redis.connect(until).map(|_| redis)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// A connection, once the server answers; every later call on it is bounded too.
    pub fn connect(&self, until: &Stop) -> io::Result<Connection> {
        let client = Client::open(self.url()).map_err(io::Error::other)?;
        let deadline = BootClock.now() + PATIENCE;
        loop {
            let connected = client.get_connection_with_timeout(Duration::from_secs(1));
            let answered = connected.and_then(|mut connection| {
                connection.set_read_timeout(Some(PATIENCE))?;
                redis::cmd("PING").exec(&mut connection)?;
                Ok(connection)
            });
            match answered {
                Ok(connection) => return Ok(connection),
                Err(error) if BootClock.now() > deadline => {
                    let why = format!("redis-server gives no answer within {PATIENCE:?}: {error}");
                    return Err(io::Error::other(why));
                }
                Err(_) if until.within(Duration::from_millis(20)) => {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                Err(_) => (),
            }
        }
    }

    /// SIGKILL, and up again on the same port from the last snapshot.
    pub fn crash_and_restart(&mut self, until: &Stop) -> io::Result<Connection> {
        self.kill();
        self.child = spawn(&self.dir, self.port)?;
        self.connect(until)
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn spawn(dir: &std::path::Path, port: u16) -> io::Result<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--port"]).arg(port.to_string());
    command.arg("--dir").arg(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Not in our process group: Ctrl-C is for us, and we end the server ourselves.
    command.process_group(0).spawn().map_err(|error| {
        let way_out = "`make setup` installs it on Debian and Ubuntu";
        io::Error::other(format!("cannot start redis-server ({error}): {way_out}"))
    })
}
