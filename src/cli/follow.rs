//! What becomes of the fleet, as it happens: followed by `leasehold watch` and `leasehold audit`.
//!
//! Lease events and changes are read from streams, so those of an outage are read afterwards. Results are pushed, and a result
//! that was announced while no connection was subscribed is missed.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::model::EndpointId;
use crate::store::admin::result_stream::{Announced, Results};
use crate::store::history::{Entry, Stream};
use crate::store::redis::RedisStore;
use crate::store::{Fault, StoreError};
use crate::thread::{Stop, Thread};
use crossbeam_channel::Sender;

use crate::cli::history;

/// How often a stream is read.
const LOOK: Duration = Duration::from_millis(200);
/// A store that does not answer is asked again after this.
const RETRY: Duration = Duration::from_secs(1);
/// How many entries are read at a time.
const PAGE: usize = 1_000;

/// Where news comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Leases,
    Changes,
    Results,
}

/// What a follower tells.
pub(crate) enum News {
    Lease(Entry),
    Change(Entry),
    Result(Announced),
    /// Messages on the channels of results that no instance writes.
    Foreign(u64),
    /// The source cannot be read: why, and when something was last received from it.
    Away(Source, String, Moment),
    Back(Source),
    Refused(Source, String),
}

/// One thread's work.
pub(crate) enum Follower {
    Leases(Place, String),
    Changes(Place, String),
    Results(Place, Box<Results>),
}

/// The followers, and the sources that the user may not read, each with the refusal.
pub(crate) struct Begun {
    pub(crate) followers: Vec<Follower>,
    pub(crate) refused: Vec<(Source, String)>,
}

/// What is followed, and where.
#[derive(Clone)]
pub(crate) struct Place {
    store: Arc<RedisStore>,
    endpoint: Option<EndpointId>,
    timeout: Duration,
}

impl Follower {
    /// The followers of what this user may read, from now on, and what it may not, with the refusals. Fails if it may read nothing,
    /// or if Redis does not answer.
    pub(crate) fn begin(
        config: &Config,
        endpoint: Option<&EndpointId>,
    ) -> Result<Begun, StoreError> {
        let timeout = config.store_timeout;
        let store = Arc::new(RedisStore::of_endpoints(config));
        let (leases, results) = match store.history(Stream::Leases, None, 1, timeout) {
            Err(error) if error.fault != Fault::Misconfigured => return Err(error),
            leases => (leases, store.follow_results(endpoint, timeout)),
        };
        let place = Place { store, endpoint: endpoint.cloned(), timeout };
        let (mut refused, mut followers) = (Vec::new(), Vec::new());
        match (leases, results) {
            (Err(error), Err(_)) => return Err(error),
            (leases, results) => {
                match leases {
                    Ok(last) => {
                        let last = last.into_iter().next().map_or("0-0".into(), |it| it.id);
                        followers.push(Self::Leases(place.clone(), last));
                    }
                    Err(error) => refused.push((Source::Leases, error.to_string())),
                }
                match place.store.history(Stream::Changes, None, 1, timeout) {
                    Ok(last) => {
                        let last = last.into_iter().next().map_or("0-0".into(), |it| it.id);
                        followers.push(Self::Changes(place.clone(), last));
                    }
                    Err(error) => refused.push((Source::Changes, error.to_string())),
                }
                match results {
                    Ok(results) => followers.push(Self::Results(place, Box::new(results))),
                    Err(error) if error.fault == Fault::Misconfigured => {
                        refused.push((Source::Results, error.to_string()));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Begun { followers, refused })
    }

    /// Follows on a thread of its own, until told to stop or until nobody takes what it tells.
    pub(crate) fn spawn(self, tell: &Sender<News>, when: &Stop) -> std::io::Result<Thread> {
        let (tell, when) = (tell.clone(), when.clone());
        Thread::spawn(self.name(), move || self.run(&tell, &when))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Leases(..) => "follow-leases",
            Self::Changes(..) => "follow-changes",
            Self::Results(..) => "follow-results",
        }
    }

    fn run(self, tell: &Sender<News>, stop: &Stop) {
        // Nobody listens any more: that is the end.
        let _ = match self {
            Self::Leases(place, after) => place.follow(Stream::Leases, after, tell, stop),
            Self::Changes(place, after) => place.follow(Stream::Changes, after, tell, stop),
            Self::Results(place, results) => place.follow_results(*results, tell, stop),
        };
    }
}

/// Nobody is there to be told.
struct Unheard;

type Told = Result<(), Unheard>;

fn tell(to: &Sender<News>, news: News) -> Told {
    to.send(news).map_err(|_| Unheard)
}

impl Place {
    fn follow(self, stream: Stream, mut after: String, to: &Sender<News>, stop: &Stop) -> Told {
        let (source, news): (Source, fn(Entry) -> News) = match stream {
            Stream::Leases => (Source::Leases, News::Lease),
            Stream::Changes => (Source::Changes, News::Change),
        };
        let (mut away, mut heard_at) = (false, BootClock.now());
        loop {
            let wait = match self.store.history_after(stream, &after, PAGE, self.timeout) {
                Ok(entries) => {
                    heard_at = BootClock.now();
                    if std::mem::take(&mut away) {
                        tell(to, News::Back(source))?;
                    }
                    let more = entries.len() == PAGE;
                    for entry in entries {
                        after.clone_from(&entry.id);
                        if history::is_of(&entry, self.endpoint.as_ref()) {
                            tell(to, news(entry))?;
                        }
                    }
                    if more { Duration::ZERO } else { LOOK }
                }
                Err(error) => {
                    away = true;
                    trouble(source, &error, heard_at, to)?;
                    RETRY
                }
            };
            if stop.within(wait) {
                return Ok(());
            }
        }
    }

    fn follow_results(self, results: Results, to: &Sender<News>, stop: &Stop) -> Told {
        let (mut line, mut heard_at) = (Some(results), BootClock.now());
        loop {
            let broken = match &mut line {
                Some(results) => match results.next(LOOK) {
                    Ok(announced) => {
                        announced.map_or(Ok(()), |it| tell(to, News::Result(it)))?;
                        match results.take_foreign() {
                            0 => None,
                            n => tell(to, News::Foreign(n)).map(|()| None)?,
                        }
                    }
                    Err(error) => {
                        heard_at = results.received_at();
                        Some(error)
                    }
                },
                None => match self.store.follow_results(self.endpoint.as_ref(), self.timeout) {
                    Ok(results) => {
                        line = Some(results);
                        tell(to, News::Back(Source::Results))?;
                        None
                    }
                    Err(error) => Some(error),
                },
            };
            let wait = if broken.is_some() { RETRY } else { Duration::ZERO };
            if let Some(error) = broken {
                line = None;
                trouble(Source::Results, &error, heard_at, to)?;
            }
            if stop.within(wait) {
                return Ok(());
            }
        }
    }
}

/// A refusal that cannot pass ends the thread; everything else is tried again.
fn trouble(source: Source, error: &StoreError, heard_at: Moment, to: &Sender<News>) -> Told {
    match error.fault {
        Fault::Misconfigured => {
            tell(to, News::Refused(source, error.to_string()))?;
            Err(Unheard)
        }
        _ => tell(to, News::Away(source, error.to_string(), heard_at)),
    }
}
