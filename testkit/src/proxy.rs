//! A wire to Redis that a test can cut or clog.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Open,
    /// Bytes wait, as in a partition, and arrive after it, however late, even if the sender has hung up.
    Clogged,
    /// Every connection is closed, and every new one.
    Cut,
    Over,
}

struct Shared {
    mode: Mutex<Mode>,
    changed: Condvar,
    streams: Mutex<Vec<TcpStream>>,
    to: AtomicU16,
    /// How long every byte takes, either way.
    way_ms: AtomicU64,
}

/// Forwards a port of its own to another.
pub struct Proxy {
    ip: String,
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    pub fn start(to: u16) -> Self {
        Self::start_on("127.0.0.1", to)
    }

    /// At an address that others can reach, too.
    pub fn start_on(ip: &str, to: u16) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            mode: Mutex::new(Mode::Open),
            changed: Condvar::new(),
            streams: Mutex::default(),
            to: AtomicU16::new(to),
            way_ms: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                match *accepting.mode.lock() {
                    Mode::Over => return,
                    Mode::Cut => continue,
                    Mode::Open | Mode::Clogged => (),
                }
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || shared.connect(&stream));
            }
        });
        Self { ip: ip.into(), port, shared }
    }

    pub fn url(&self) -> String {
        format!("redis://{}:{}/0", self.ip, self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// New connections lead there from now on.
    pub fn lead_to(&self, to: u16) {
        self.shared.to.store(to, Ordering::SeqCst);
    }

    /// As far away from now on as that each way.
    pub fn lie_far_away(&self, way: Duration) {
        let ms = u64::try_from(way.as_millis()).unwrap();
        self.shared.way_ms.store(ms, Ordering::SeqCst);
    }

    pub fn clog(&self) {
        self.shared.set(Mode::Clogged);
    }

    pub fn cut(&self) {
        self.shared.set(Mode::Cut);
        for stream in self.shared.streams.lock().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    pub fn heal(&self) {
        self.shared.set(Mode::Open);
    }
}

impl Shared {
    fn set(&self, mode: Mode) {
        *self.mode.lock() = mode;
        self.changed.notify_all();
    }

    fn wait_while_clogged(&self) {
        self.changed.wait_while(&mut self.mode.lock(), |it| *it == Mode::Clogged);
    }

    fn connect(self: &Arc<Self>, near: &TcpStream) {
        self.wait_while_clogged();
        let Ok(far) = TcpStream::connect(("127.0.0.1", self.to.load(Ordering::SeqCst))) else {
            return;
        };
        for stream in [near, &far] {
            drop(stream.set_nodelay(true));
            self.streams.lock().push(stream.try_clone().unwrap());
        }
        let (shared, from, to) =
            (Arc::clone(self), far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || shared.pump(&from, &to));
        self.pump(near, &far);
    }

    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut buffer = [0; 16 * 1024];
        loop {
            let n = from.read(&mut buffer).unwrap_or(0);
            std::thread::sleep(Duration::from_millis(self.way_ms.load(Ordering::SeqCst)));
            self.wait_while_clogged();
            if n == 0 || to.write_all(&buffer[..n]).is_err() {
                drop(to.shutdown(Shutdown::Write));
                return;
            }
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.shared.set(Mode::Over);
        drop(TcpStream::connect((self.ip.as_str(), self.port)));
    }
}
