//! The cheapest thing that can be polled: an HTTP server with a fixed answer, threads that are there already, and
//! no more than one read and one write for a request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold::thread::Thread;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"status\":\"up\"}";
/// What its threads are called.
pub(crate) const NAME: &str = "target";

/// Answers until it is dropped.
pub(crate) struct Target {
    port: u16,
    shared: Arc<Shared>,
    threads: Vec<Thread>,
}

struct Shared {
    listener: TcpListener,
    answers: AtomicU64,
    is_over: AtomicBool,
}

impl Target {
    /// Serves as many connections at a time as it has `threads`.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(("0.0.0.0", 0))?;
        let port = listener.local_addr()?.port();
        let (answers, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { listener, answers, is_over });
        let serve = |_| {
            let shared = Arc::clone(&shared);
            Thread::spawn(NAME, move || shared.serve())
        };
        let threads = (0..threads).map(serve).collect::<io::Result<_>>()?;
        Ok(Self { port, shared, threads })
    }

    /// The `n`th of 250 addresses of this machine at which it is. So many, because each connection takes a
    /// port away from its address for a while.
    pub(crate) fn address(&self, n: u32) -> String {
        format!("127.0.1.{}:{}", n % 250 + 1, self.port)
    }

    /// Requests answered so far.
    pub(crate) fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Relaxed)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for _ in &self.threads {
            let _ = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], self.port)));
        }
    }
}

impl Shared {
    fn serve(&self) {
        while !self.is_over.load(Ordering::SeqCst) {
            let Ok((stream, _)) = self.listener.accept() else { continue };
            let _ = self.converse(stream);
        }
    }

    /// Answers one request after the other on this connection, until either side wants no more.
    fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut request = [0; 2_048];
        let mut got = 0;
        loop {
            let more = stream.read(&mut request[got..])?;
            if more == 0 {
                return Ok(());
            }
            got += more;
            if !request[..got].ends_with(b"\r\n\r\n") {
                continue;
            }
            stream.write_all(ANSWER)?;
            self.answers.fetch_add(1, Ordering::Relaxed);
            let close = b"onnection: close";
            if request[..got].windows(close.len()).any(|it| it == close) {
                return Ok(());
            }
            got = 0;
        }
    }
}
