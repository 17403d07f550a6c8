//! The polled endpoint is the judge: it records who asked when, and under which fence.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::thread::stop;
use parking_lot::Mutex;

/// How long a request takes here, so that two at a time can be seen.
const ANSWER_AFTER: Duration = Duration::from_millis(20);

/// What was seen in one act.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) polls: u32,
    /// The longest time from one poll of an endpoint to its next.
    pub(crate) gap: Duration,
    /// A poll began while another of the same endpoint ran.
    pub(crate) overlaps: u32,
    /// A poll came under an older fence than one before it, or two instances under the same.
    pub(crate) regressions: u32,
}

impl Seen {
    /// Never two at a time, never one with less right than another before it.
    pub(crate) fn is_sound(&self) -> bool {
        self.overlaps == 0 && self.regressions == 0
    }
}

#[derive(Default)]
struct Record {
    act: Seen,
    endpoints: HashMap<String, Endpoint>,
}

#[derive(Default)]
struct Endpoint {
    running: u32,
    last: Option<(Moment, u64, String)>,
}

/// An HTTP server on a free loopback port, until the program ends.
pub(crate) struct Judge {
    pub(crate) port: u16,
    record: Arc<Mutex<Record>>,
}

impl Judge {
    pub(crate) fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let (port, record) = (listener.local_addr()?.port(), Arc::<Mutex<Record>>::default());
        let shared = Arc::clone(&record);
        std::thread::Builder::new().name("judge".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let record = Arc::clone(&shared);
                let serve = move || drop(serve(&stream, &record));
                // Without a thread the request is dropped, which is a failed poll.
                let _ = std::thread::Builder::new().spawn(serve);
            }
        })?;
        Ok(Self { port, record })
    }

    /// Ends an act: what was seen in it, gaps that are still open included.
    pub(crate) fn end_act(&self) -> Seen {
        let mut record = self.record.lock();
        let now = BootClock.now();
        let open = record.endpoints.values().filter_map(|it| it.last.as_ref());
        let open = open.map(|it| now.since(it.0)).max().unwrap_or_default();
        let mut act = std::mem::take(&mut record.act);
        act.gap = act.gap.max(open);
        act
    }
}

impl Record {
    fn begin(&mut self, endpoint: &str, fence: u64, instance: String) {
        let now = BootClock.now();
        let it = self.endpoints.entry(endpoint.into()).or_default();
        self.act.polls += 1;
        self.act.overlaps += u32::from(it.running > 0);
        it.running += 1;
        if let Some((at, before, by)) = &it.last {
            self.act.gap = self.act.gap.max(now.since(*at));
            let back = fence < *before || (fence == *before && instance != *by);
            self.act.regressions += u32::from(back);
        }
        it.last = Some((now, fence, instance));
    }

    fn end(&mut self, endpoint: &str) {
        if let Some(it) = self.endpoints.get_mut(endpoint) {
            it.running -= 1;
        }
    }
}

fn serve(stream: &TcpStream, record: &Mutex<Record>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let endpoint = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut fence, mut instance) = (0, String::new());
    for line in lines {
        let line = line?;
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("x-leasehold-fence") => {
                fence = value.parse().unwrap_or(0);
            }
            Some((name, value)) if name.eq_ignore_ascii_case("x-leasehold-instance") => {
                instance = value.into();
            }
            _ if line.is_empty() => break,
            _ => (),
        }
    }
    record.lock().begin(&endpoint, fence, instance);
    let (_source, never) = stop();
    never.within(ANSWER_AFTER);
    record.lock().end(&endpoint);
    (&*stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
}
