//! What was read last, shared by all who look. The thread `web-reader` reads it at most once a second, and only while
//! somebody looks: a hundred readers cost Redis as much as one, and none costs nothing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, after, bounded, select};
use parking_lot::Mutex;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::{Config, RedisUrl};
use crate::inspect::status::EndpointStatus;
use crate::inspect::status::json::document;
use crate::net::http_server::Request;
use crate::store::redis::RedisStore;
use crate::store::{Fault, StoreResult};
use crate::thread::{Stop, StopSource, Thread, stop};
use crate::web::history::{Latencies, Loads, Viewed};
use crate::web::router::Route;
use crate::web::snapshot::Snapshot;

/// It is read no more often than this …
const EVERY: Duration = Duration::from_secs(1);
/// … and reading takes at most one part in this many of the time.
const READING_SHARE: u32 = 10;
/// What should have been read again this long ago is not shown to a new client, unless Redis is away.
const CURRENT: Duration = Duration::from_secs(4);
/// When nobody has looked for this long, what was read is forgotten: it may be large.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// What was read, and what failed.
pub(crate) struct Cache {
    state: Mutex<State>,
    asks: Sender<()>,
}

#[derive(Default)]
struct State {
    snapshot: Option<Arc<Snapshot>>,
    /// Since when reading fails, and why.
    trouble: Option<(Moment, String)>,
    loads: Arc<Loads>,
    viewed: Viewed,
    looked_at: Moment,
    /// When it may be read again.
    due: Moment,
    wants_document: bool,
}

/// What somebody who looks is shown.
pub(crate) struct Seen {
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// For how long reading has failed, and why.
    pub(crate) trouble: Option<(Duration, String)>,
    pub(crate) loads: Arc<Loads>,
    /// Of the endpoint that is asked about.
    pub(crate) latencies: Latencies,
    pub(crate) now: Moment,
    due: Moment,
}

impl Seen {
    #[cfg(test)]
    pub(crate) fn of(snapshot: Option<Snapshot>, trouble: Option<&str>) -> Self {
        let trouble = trouble.map(|it| (Duration::from_secs(7), it.to_owned()));
        let (loads, latencies) = (Arc::default(), Latencies::default());
        let (now, due) = (Moment::from_nanos(9_000_000_000), Moment::MIN);
        Self { snapshot: snapshot.map(Arc::new), trouble, loads, latencies, now, due }
    }

    /// Whether there is nothing better to come soon.
    pub(crate) fn is_current(&self, wanted: Route) -> bool {
        let Some(snapshot) = &self.snapshot else { return self.trouble.is_some() };
        let is_made = wanted != Route::Document || snapshot.document.get().is_some();
        is_made && (self.trouble.is_some() || self.now.since(self.due) <= CURRENT)
    }
}

impl Cache {
    /// Somebody looks: what there is now. What comes next is on its way.
    pub(crate) fn look(&self, request: &Request, wanted: Route, now: Moment) -> Seen {
        let seen = {
            let mut state = self.state.lock();
            state.looked_at = now;
            state.wants_document |= wanted == Route::Document;
            let snapshot = state.snapshot.clone();
            let name = request.field("id").filter(|_| wanted == Route::Endpoint);
            let viewed = snapshot.as_ref().zip(name).and_then(|it| it.0.endpoint(it.1));
            let latencies = viewed.map(|it| state.viewed.note(it)).unwrap_or_default();
            let trouble = state.trouble.as_ref().map(|it| (now.since(it.0), it.1.clone()));
            let (loads, due) = (Arc::clone(&state.loads), state.due);
            Seen { snapshot, trouble, loads, latencies, now, due }
        };
        // One that waits already is enough.
        let _ = self.asks.try_send(());
        seen
    }

    fn keep(&self, read: StoreResult<Snapshot>, began: Moment, now: Moment) {
        let mut state = self.state.lock();
        let before = state.snapshot.clone();
        state.due = next(began, now);
        match read {
            Ok(snapshot) => {
                Arc::make_mut(&mut state.loads).add(&snapshot.status, snapshot.read_at);
                state.viewed.add(|name| snapshot.endpoint(name));
                state.trouble = None;
                state.snapshot = Some(Arc::new(snapshot));
            }
            Err(error) => {
                let since = state.trouble.take().map_or(now, |it| it.0);
                state.trouble = Some((since, error.to_string()));
            }
        }
        drop(state);
        drop(before); // outside of the lock: it may be large
    }

    /// Forgets what nobody has looked at for long.
    fn tidy(&self, now: Moment) {
        let mut state = self.state.lock();
        if now.since(state.looked_at) >= FORGOTTEN {
            let before = (state.snapshot.take(), state.trouble.take());
            drop(state);
            drop(before);
        }
    }

    /// Somebody looks, and the last reading is long enough ago.
    fn is_to_read(&self, now: Moment) -> bool {
        let state = self.state.lock();
        now.since(state.looked_at) < FORGOTTEN && now >= state.due
    }

    /// The snapshot whose document is asked for and not made yet.
    fn without_document(&self) -> Option<Arc<Snapshot>> {
        let mut state = self.state.lock();
        let wanted = std::mem::take(&mut state.wants_document);
        let snapshot = state.snapshot.clone().filter(|_| wanted)?;
        Some(snapshot).filter(|it| it.document.get().is_none())
    }
}

/// The thread `web-reader`, as long as this is kept. A Redis that hangs keeps nobody from stopping.
pub(crate) struct Reader(Option<StopSource>, Option<Thread>);

impl Reader {
    pub(crate) fn start(config: &Config, stale_after: Duration) -> io::Result<(Self, Arc<Cache>)> {
        let (asks, asked) = bounded(1);
        let cache = Arc::new(Cache { state: Mutex::default(), asks });
        let stores = Stores {
            endpoints: RedisStore::of_endpoints(config),
            roles: RedisStore::of_roles(config),
            timeout: config.store_timeout,
            stale_after,
        };
        let (source, when) = stop();
        let (mine, redis) = (Arc::clone(&cache), config.redis.clone());
        let thread =
            Thread::spawn("web-reader", move || run(&mine, &stores, &redis, &asked, &when))?;
        Ok((Self(Some(source), Some(thread)), cache))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.0.take());
        // It may wait for Redis longer than anybody wants to wait for the end; it ends with the process.
        if let Some(thread) = self.1.take().filter(|it| !it.is_finished()) {
            std::mem::forget(thread);
        }
    }
}

fn run(cache: &Cache, stores: &Stores, redis: &RedisUrl, asked: &Receiver<()>, when: &Stop) {
    loop {
        select! {
            recv(when.receiver()) -> _ => return,
            recv(asked) -> _ => (),
            recv(after(FORGOTTEN)) -> _ => (),
        }
        let began = BootClock.now();
        cache.tidy(began);
        if cache.is_to_read(began) {
            let read = stores.read(began);
            cache.keep(read, began, BootClock.now());
        }
        if let Some(snapshot) = cache.without_document() {
            let (status, led) = (&snapshot.status, &snapshot.led);
            let shown: Vec<&EndpointStatus> = status.endpoints.iter().collect();
            let text = document(redis, status, &shown, led, snapshot.lately.as_ref());
            let _ = snapshot.document.set(text.into_bytes().into());
        }
    }
}

/// When to read again after a reading.
fn next(began: Moment, ended: Moment) -> Moment {
    let took = ended.since(began);
    (began + EVERY).max(ended + took * (READING_SHARE - 1))
}

struct Stores {
    endpoints: RedisStore,
    roles: RedisStore,
    timeout: Duration,
    stale_after: Duration,
}

impl Stores {
    fn read(&self, began: Moment) -> StoreResult<Snapshot> {
        let overview = self.endpoints.overview(self.timeout)?;
        let led = match self.roles.role_overview(self.timeout) {
            // Who may not see the keys of roles is not told of any.
            Err(error) if error.fault == Fault::Misconfigured => vec![],
            led => led?,
        };
        let entries = self.endpoints.whole_history(self.timeout).ok();
        let now = BootClock.now();
        let times = (now, now.since(began));
        Ok(Snapshot::of(overview, led, entries, self.stale_after, times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;
    use crate::store::admin::overview::Overview;

    fn second(n: u64) -> Moment {
        Moment::from_nanos(n * 1_000_000_000)
    }

    fn cache() -> (Cache, Receiver<()>) {
        let (asks, asked) = bounded(1);
        (Cache { state: Mutex::default(), asks }, asked)
    }

    fn snapshot(at: Moment) -> Snapshot {
        let times = (at, Duration::ZERO);
        Snapshot::of(Overview::default(), vec![], None, Duration::from_secs(120), times)
    }

    fn look(cache: &Cache, wanted: Route, at: Moment) -> Seen {
        cache.look(&Request::parse(b"GET / HTTP/1.0"), wanted, at)
    }

    #[test]
    fn it_is_read_at_most_once_a_second_however_many_look_and_never_when_nobody_does() {
        let (cache, asked) = cache();
        assert!(!cache.is_to_read(second(1_000)), "nobody looks");
        for _ in 0..100 {
            look(&cache, Route::Fleet, second(1_000));
        }
        assert_eq!(asked.try_iter().count(), 1, "a hundred who look ask once");
        assert!(cache.is_to_read(second(1_000)));
        cache.keep(Ok(snapshot(second(1_000))), second(1_000), second(1_000));
        assert!(!cache.is_to_read(second(1_000) + Duration::from_millis(999)));
        assert!(cache.is_to_read(second(1_001)));
        assert!(!cache.is_to_read(second(1_060)), "nobody has looked for a minute");
    }

    #[test]
    fn reading_takes_at_most_a_tenth_of_the_time() {
        assert_eq!(next(second(10), second(10)), second(11));
        assert_eq!(next(second(10), second(12)), second(12 + 9 * 2));
    }

    #[test]
    fn who_comes_late_is_not_shown_what_is_old_unless_redis_is_away() {
        let (cache, _asked) = cache();
        assert!(!look(&cache, Route::Fleet, second(1)).is_current(Route::Fleet));
        cache.keep(Ok(snapshot(second(1))), second(1), second(1));
        assert!(look(&cache, Route::Fleet, second(5)).is_current(Route::Fleet));
        assert!(!look(&cache, Route::Fleet, second(7)).is_current(Route::Fleet));
        let (fault, reason) = (Fault::Unreachable, "gone".to_owned());
        let error = StoreError { op: "ask", target: "redis".into(), fault, reason };
        cache.keep(Err(error), second(7), second(8));
        let seen = look(&cache, Route::Fleet, second(30));
        assert!(seen.is_current(Route::Fleet) && seen.snapshot.is_some());
        assert_eq!(seen.trouble.unwrap().0, Duration::from_secs(22));
    }

    #[test]
    fn what_nobody_looks_at_is_forgotten_and_the_document_is_made_on_demand_only() {
        let (cache, _asked) = cache();
        look(&cache, Route::Fleet, second(1));
        cache.keep(Ok(snapshot(second(1))), second(1), second(1));
        assert!(cache.without_document().is_none(), "nobody asks for it");
        assert!(!look(&cache, Route::Document, second(1)).is_current(Route::Document));
        assert!(cache.without_document().is_some());
        cache.tidy(second(60));
        assert!(look(&cache, Route::Fleet, second(60)).snapshot.is_some());
        cache.tidy(second(120));
        assert!(look(&cache, Route::Fleet, second(120)).snapshot.is_none());
    }
}
