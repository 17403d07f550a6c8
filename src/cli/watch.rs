//! `leasehold watch`: follows the fleet live. One line for each lease event, each change of a verdict and each result.
//!
//! Lease events and changes are read from streams, so those of an outage are told afterwards; results are heard, and
//! what was announced while nobody listened is gone.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::model::{EndpointId, InstanceId};
use crate::stop_on_signal;
use crate::store::admin::result_stream::{Announced, Results};
use crate::store::history::{Entry, Stream};
use crate::store::redis::RedisStore;
use crate::store::{Fault, StoreError};
use crate::thread::{Stop, Thread, stop};
use crossbeam_channel::{Receiver, Sender, bounded, select};
use serde_json::{Value, json};

use crate::cli::status::without_controls;
use crate::cli::table::{Paint, Painter, brief, printable};
use crate::cli::{FAILED, explained, fail, history, unheard, utc};

/// The stream is looked at so often.
const LOOK: Duration = Duration::from_millis(200);
/// A store that does not answer is asked again after this.
const RETRY: Duration = Duration::from_secs(1);
/// How many entries are read at a time.
const PAGE: usize = 1_000;
/// More than this waits where it comes from.
const NEWS_MAX: usize = 1_024;

/// Where news come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Leases,
    Changes,
    Results,
}

/// Anything to tell.
enum News {
    Lease(Entry),
    Change(Entry),
    Result(Announced),
    Away(Source, String),
    Back(Source),
    Refused(Source, String),
}

/// Follows until a signal, or until nobody reads any more.
pub(crate) fn watch(config: &Config, endpoint: Option<&EndpointId>, as_json: bool) -> ExitCode {
    // First of all: what it blocks must be blocked in every thread.
    let Ok(signalled) = stop_on_signal() else { return fail(FAILED, &"cannot handle signals") };
    let (mut told, followers) = match Follower::begin(config, endpoint) {
        Ok(begun) => begun,
        Err(error) => return fail(FAILED, &printable(&error.to_string())),
    };
    told.as_json = as_json;
    let (source, when) = stop();
    let (tell, news) = bounded(NEWS_MAX);
    let mut threads = Vec::new();
    for follower in followers {
        let (tell, when) = (tell.clone(), when.clone());
        match Thread::spawn(follower.name(), move || follower.run(&tell, &when)) {
            Ok(thread) => threads.push(thread),
            Err(error) => return fail(FAILED, &format!("cannot start a thread: {error}")),
        }
    }
    drop(tell);
    let code = told.tell_all(&news, &signalled);
    // In this order: the threads that wait to tell something, or for something, end first.
    drop((news, source, threads));
    code
}

/// One thread's work.
enum Follower {
    Leases(Place, String),
    Changes(Place, String),
    Results(Place, Box<Results>),
}

/// What is followed, and where.
#[derive(Clone)]
struct Place {
    store: Arc<RedisStore>,
    endpoint: Option<EndpointId>,
    timeout: Duration,
}

impl Follower {
    /// What may be followed, from now on. Fails when nothing may, or nobody answers.
    fn begin(
        config: &Config,
        endpoint: Option<&EndpointId>,
    ) -> Result<(Teller, Vec<Self>), StoreError> {
        let timeout = config.store_timeout;
        let store = Arc::new(RedisStore::of_endpoints(config));
        let (leases, results) = match store.history(Stream::Leases, None, 1, timeout) {
            Err(error) if error.fault != Fault::Misconfigured => return Err(error),
            leases => (leases, store.follow_results(endpoint, timeout)),
        };
        let place = Place { store, endpoint: endpoint.cloned(), timeout };
        let teller = Teller::default();
        let mut followers = Vec::new();
        match (leases, results) {
            (Err(error), Err(_)) => return Err(error),
            (leases, results) => {
                match leases {
                    Ok(last) => {
                        let last = last.into_iter().next().map_or("0-0".into(), |it| it.id);
                        followers.push(Self::Leases(place.clone(), last));
                    }
                    Err(error) => teller.refused(Source::Leases, &error.to_string()),
                }
                match place.store.history(Stream::Changes, None, 1, timeout) {
                    Ok(last) => {
                        let last = last.into_iter().next().map_or("0-0".into(), |it| it.id);
                        followers.push(Self::Changes(place.clone(), last));
                    }
                    Err(error) => teller.refused(Source::Changes, &error.to_string()),
                }
                match results {
                    Ok(results) => followers.push(Self::Results(place, Box::new(results))),
                    Err(error) if error.fault == Fault::Misconfigured => {
                        teller.refused(Source::Results, &error.to_string());
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((teller, followers))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Leases(..) => "watch-leases",
            Self::Changes(..) => "watch-changes",
            Self::Results(..) => "watch-results",
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
        let mut away = false;
        loop {
            let wait = match self.store.history_after(stream, &after, PAGE, self.timeout) {
                Ok(entries) => {
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
                    trouble(source, &error, to)?;
                    RETRY
                }
            };
            if stop.within(wait) {
                return Ok(());
            }
        }
    }

    fn follow_results(self, results: Results, to: &Sender<News>, stop: &Stop) -> Told {
        let mut line = Some(results);
        loop {
            let broken = match &mut line {
                Some(results) => match results.next(LOOK) {
                    Ok(announced) => {
                        announced.map_or(Ok(()), |it| tell(to, News::Result(it)))?;
                        None
                    }
                    Err(error) => Some(error),
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
                trouble(Source::Results, &error, to)?;
            }
            if stop.within(wait) {
                return Ok(());
            }
        }
    }
}

/// A refusal that cannot pass ends the thread; everything else is tried again.
fn trouble(source: Source, error: &StoreError, to: &Sender<News>) -> Told {
    match error.fault {
        Fault::Misconfigured => {
            tell(to, News::Refused(source, error.to_string()))?;
            Err(Unheard)
        }
        _ => tell(to, News::Away(source, error.to_string())),
    }
}

/// Says it, each thing once.
#[derive(Default)]
struct Teller {
    as_json: bool,
    away: BTreeSet<Source>,
    away_since: Moment,
}

impl Teller {
    fn tell_all(mut self, news: &Receiver<News>, signalled: &Stop) -> ExitCode {
        let painter = Painter::for_stdout();
        loop {
            let first = select! {
                recv(signalled.receiver()) -> _ => return ExitCode::SUCCESS,
                recv(news) -> it => it,
            };
            // Every follower was refused, and said so.
            let Ok(first) = first else { return ExitCode::from(FAILED) };
            let mut lines = String::new();
            for it in [first].into_iter().chain(news.try_iter().take(NEWS_MAX)) {
                lines += &self.line(it, painter);
            }
            let mut stdout = io::stdout().lock();
            if let Err(error) = stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush()) {
                return unheard(&error);
            }
        }
    }

    /// The line for stdout; what concerns the watching itself goes to stderr.
    fn line(&mut self, news: News, painter: Painter) -> String {
        match news {
            News::Lease(entry) if self.as_json => document("lease", history::document(&entry)),
            News::Change(entry) if self.as_json => document("change", history::document(&entry)),
            News::Lease(entry) | News::Change(entry) => lease_line(&entry, painter),
            News::Result(it) if self.as_json => document("result", result_document(&it)),
            News::Result(it) => result_line(&it, painter),
            News::Away(source, error) => self.gone(source, &error),
            News::Back(source) => self.back(source),
            News::Refused(source, error) => {
                self.back(source);
                self.refused(source, &error);
                String::new()
            }
        }
    }

    fn gone(&mut self, source: Source, error: &str) -> String {
        if self.away.is_empty() {
            self.away_since = BootClock.now();
            let error = printable(error);
            complain(&format!("Redis does not answer, trying again: {error}"));
        }
        self.away.insert(source);
        String::new()
    }

    fn back(&mut self, source: Source) -> String {
        if self.away.remove(&source) && self.away.is_empty() {
            let away = brief(BootClock.now().since(self.away_since));
            complain(&format!("Redis answers again, after {away}"));
        }
        String::new()
    }

    fn refused(&self, source: Source, error: &str) {
        let (what, rule) = match source {
            Source::Leases => ("lease events", "%R~poll:* +xrange +xrevrange"),
            Source::Changes => ("changes", "%R~poll:* +xrange +xrevrange"),
            Source::Results => ("results", "&poll:results:* +subscribe +psubscribe +ping"),
        };
        let lacks = match error.contains("WRONGTYPE") {
            true => String::new(), // the error has the reason
            false => format!(", because the user lacks {rule}"),
        };
        let error = explained(printable(error));
        complain(&format!("{what} are not shown{lacks}: {error}"));
    }
}

pub(crate) fn complain(sentence: &str) {
    let _ = io::stderr().write_all(format!("leasehold: {sentence}\n").as_bytes());
}

fn document(kind: &str, mut it: Value) -> String {
    it["type"] = kind.into();
    without_controls(&it.to_string()) + "\n"
}

fn result_document(it: &Announced) -> Value {
    let Announced { endpoint, result } = it;
    json!({
        "endpoint": endpoint,
        "ok": result.ok,
        "status": result.status,
        "error": result.error,
        "startedAtMs": result.started_at_ms,
        "durationMs": result.duration_ms,
        "fence": result.fence.map(|it| it.0),
        "instance": result.instance.as_ref().map(InstanceId::as_str),
    })
}

/// In the manner of the log, so that the same `grep` finds it.
fn lease_line(it: &Entry, painter: Painter) -> String {
    let event = painter.paint(history::paint(it), &printable(&it.event));
    let mut line =
        format!("{} {} {event}", utc::date_and_time(it.at_ms), printable(history::endpoint(it)));
    put(&mut line, "instance", Some(&it.instance));
    put(&mut line, "fence", it.fence.as_ref());
    put(&mut line, "reason", it.reason.as_ref());
    put(&mut line, "owner", it.owner.as_ref());
    put(&mut line, "heir", it.heir.as_ref());
    line + "\n"
}

fn result_line(it: &Announced, painter: Painter) -> String {
    let Announced { endpoint, result } = it;
    let time = result.started_at_ms.map_or("-".into(), utc::date_and_time);
    let word = match result.ok {
        true => painter.paint(Paint::Good, "ok"),
        false => painter.paint(Paint::Bad, "failed"),
    };
    let mut line = format!("{time} {} {word}", printable(endpoint));
    put(&mut line, "status", result.status.as_ref());
    put(&mut line, "duration_ms", result.duration_ms.as_ref());
    put(&mut line, "instance", result.instance.as_ref());
    put(&mut line, "fence", result.fence.as_ref());
    put(&mut line, "error", result.error.as_ref());
    line + "\n"
}

fn put(line: &mut String, key: &str, value: Option<&impl ToString>) {
    let Some(value) = value.map(|it| printable(&it.to_string())) else { return };
    let plain = value.chars().all(|c| !c.is_whitespace() && c != '"' && c != '=');
    let _ = match plain && !value.is_empty() {
        true => write!(line, " {key}={value}"),
        false => write!(line, " {key}={}", Value::from(value)),
    };
}
