//! Keeps what is held: the heartbeat, the renewals and the deadlines, each on a thread of its own.

use std::io;
use std::sync::Arc;

use crate::clock::{BootClock, Clock};
use crate::config::{Config, LogRenewals};
use crate::daemon::expiry::Expiry;
use crate::daemon::heartbeat::Heartbeat;
use crate::daemon::progress::{Part, Progress};
use crate::daemon::renewal::Renewal;
use crate::daemon::report::Reporter;
use crate::daemon::thread::{Stop, StopSource, Thread, stop};
use crate::event::Event;
use crate::model::{InstanceId, Tenure, Term, Weight};
use crate::pipeline::ownership::{OwnershipTable, Rhythm};
use crate::store::keys::Keys;
use crate::store::redis::RedisStore;
use crate::store::{BATCH_MAX, Fault, Store, StoreError, Wake};

/// A way to the store for each who must not wait behind another.
#[derive(Clone)]
pub struct Lines {
    /// For the heartbeat.
    pub heartbeat: Arc<dyn Store>,
    /// For renewals.
    pub renewal: Arc<dyn Store>,
    /// For looking, acquiring and handing over.
    pub reconcile: Arc<dyn Store>,
    /// For verifying.
    pub dispatch: Arc<dyn Store>,
    /// For results.
    pub publish: Arc<dyn Store>,
    /// For everything else.
    pub rest: Arc<dyn Store>,
}

impl Lines {
    /// A connection each to the Redis of `config`. Nothing is connected yet.
    pub fn redis(config: &Config) -> Result<Self, StoreError> {
        let keys = Keys::new(&config.prefix, &config.session_prefix);
        let store = RedisStore::new(config.redis.expose(), &config.redis.to_string(), keys)?;
        Ok(Self {
            heartbeat: Arc::new(store.line()),
            renewal: Arc::new(store.line()),
            reconcile: Arc::new(store.line()),
            dispatch: Arc::new(store.line()),
            publish: Arc::new(store.line()),
            rest: Arc::new(store),
        })
    }

    /// One way for all.
    pub fn shared(store: &Arc<dyn Store>) -> Self {
        let line = || Arc::clone(store);
        Self {
            heartbeat: line(),
            renewal: line(),
            reconcile: line(),
            dispatch: line(),
            publish: line(),
            rest: line(),
        }
    }
}

/// The table of an instance with these settings.
pub fn table(config: &Config, me: InstanceId, clock: Arc<dyn Clock>) -> Arc<OwnershipTable> {
    let rhythm = Rhythm {
        lease: Term::new(config.lease_ttl),
        heartbeat: Term::new(config.heartbeat_ttl),
        renew_interval: config.renew_interval,
        store_timeout: config.store_timeout,
    };
    Arc::new(OwnershipTable::new(me, rhythm, clock, config.new_fleet))
}

/// The threads that keep leases. Ends in two steps, because the order is the safety argument (R11).
pub struct Keeper {
    table: Arc<OwnershipTable>,
    store: Arc<dyn Store>,
    reporter: Reporter,
    heartbeat: Arc<Heartbeat>,
    beating: Option<(StopSource, Thread)>,
    keeping: Option<(StopSource, Vec<Thread>)>,
}

/// Why nothing could be started.
#[derive(Debug)]
pub enum StartError {
    /// The store can never work as it is configured.
    Store(StoreError),
    /// A thread could not be started.
    Thread(io::Error),
    /// Told to stop before it began.
    Stopped,
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Stopped => f.write_str("stopped before it began"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Thread(error)
    }
}

impl Keeper {
    /// Waits for a store that can be trusted (R14), announces this instance, and keeps what `table`
    /// will hold.
    pub fn start(
        config: &Config,
        table: &Arc<OwnershipTable>,
        lines: &Lines,
        progress: &Arc<Progress>,
        until: &Stop,
    ) -> Result<Self, StartError> {
        let interval = config.heartbeat_interval;
        let line = Arc::clone(&lines.heartbeat);
        let heartbeat =
            Arc::new(Heartbeat::new(line, Arc::clone(table), Weight(config.weight), interval));
        wait_for_store(table, until, || {
            lines.rest.inspect(config.store_timeout)?;
            heartbeat.beat().map(drop)
        })?;
        let (beating, when) = stop();
        let (beater, moving) = (Arc::clone(&heartbeat), Arc::clone(progress));
        let beat = move || {
            moving.mark(Part::Heartbeat, BootClock.now());
            beater.step()
        };
        // Source and thread together: whatever fails below, the source is dropped first.
        let beating = (beating, Thread::steps("heartbeat", when, beat)?);
        let keeping = keep(table, &lines.renewal, config.log_renewals, progress)?;
        Ok(Self {
            reporter: Reporter::new(table),
            table: Arc::clone(table),
            store: Arc::clone(&lines.rest),
            heartbeat,
            beating: Some(beating),
            keeping: Some(keeping),
        })
    }

    /// R11: from now on nobody counts us. Leases are still renewed. What is given back must not be
    /// taken by us again.
    pub fn end_heartbeat(&mut self) {
        if let Some((beating, beat)) = self.beating.take() {
            drop(beating);
            beat.join();
            if let Err(error) = self.heartbeat.withdraw() {
                self.reporter.say(&Event::StoreUnreachable { error: &error });
            }
        }
    }

    /// R11: gives back everything and wakes the heirs; renewal ends only then.
    pub fn release_all(&mut self) {
        for endpoint in self.table.endpoints() {
            self.table.drain(&endpoint);
        }
        let tenures = self.table.drained(std::time::Duration::ZERO);
        if let Some((keeping, threads)) = self.keeping.take() {
            drop(keeping);
            threads.into_iter().for_each(Thread::join);
        }
        for batch in tenures.chunks(BATCH_MAX) {
            if !self.release(batch) {
                break; // a store that does not answer is not waited for once per batch
            }
        }
    }

    fn release(&self, tenures: &[Tenure]) -> bool {
        let freed = tenures.iter().map(|it| it.endpoint.clone()).collect();
        let from = self.table.instance().clone();
        let word = Wake { to: None, from, wants: vec![], freed };
        let answer = self.store.release(&self.table.question().ask, tenures, &[word]);
        for Tenure { endpoint, .. } in tenures {
            self.reporter.say(&Event::LeaseReleased { endpoint, reason: "shutdown", heir: None });
            if let Err(error) = &answer {
                self.reporter.say(&Event::LeaseFailed { endpoint, error });
            }
        }
        answer.is_ok()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end_heartbeat();
        self.release_all();
    }
}

fn keep(
    table: &Arc<OwnershipTable>,
    line: &Arc<dyn Store>,
    log_renewals: LogRenewals,
    progress: &Arc<Progress>,
) -> io::Result<(StopSource, Vec<Thread>)> {
    let (source, when) = stop();
    let mut keeping = (source, Vec::new());
    let reporter = Reporter::new(table).renewals(log_renewals);
    let renewal = Renewal::new(Arc::clone(line), Arc::clone(table), reporter);
    let expiry = Expiry::new(Arc::clone(table));
    let moving = Arc::clone(progress);
    let renew = move || {
        moving.mark(Part::Renewal, BootClock.now());
        renewal.step()
    };
    keeping.1.push(Thread::steps("renewal", when.clone(), renew)?);
    keeping.1.push(Thread::steps("expiry", when, move || expiry.step())?);
    Ok(keeping)
}

/// Tries until it works, is hopeless, or is no longer wanted.
fn wait_for_store(
    table: &OwnershipTable,
    until: &Stop,
    attempt: impl Fn() -> Result<(), StoreError>,
) -> Result<(), StartError> {
    let reporter = Reporter::new(table);
    let mut away_since = None;
    loop {
        match attempt() {
            Ok(()) => break,
            Err(error) if error.fault == Fault::Misconfigured => {
                return Err(StartError::Store(error));
            }
            Err(error) => {
                if away_since.is_none() {
                    reporter.say(&Event::StoreUnreachable { error: &error });
                }
                away_since.get_or_insert(table.now());
            }
        }
        if until.within(table.rhythm().retry_interval()) {
            return Err(StartError::Stopped);
        }
    }
    if let Some(since) = away_since {
        reporter.say(&Event::StoreReachable { away: table.now().since(since) });
    }
    Ok(())
}
