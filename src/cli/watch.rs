//! `leasehold watch`: follows the fleet live. One line for each lease event, each change of a verdict and each result.
//!
//! Lease events and changes are read from streams, so those of an outage are told afterwards; results are heard, and
//! what was announced while nobody listened is gone.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::clock::{BootClock, Clock, Moment};
use crate::config::Config;
use crate::model::{EndpointId, InstanceId};
use crate::stop_on_signal;
use crate::store::admin::result_stream::Announced;
use crate::store::history::Entry;
use crate::thread::{Stop, stop};
use crossbeam_channel::{Receiver, bounded, select};
use serde_json::{Value, json};

use crate::cli::follow::{Begun, Follower, News, Source};
use crate::cli::status::without_controls;
use crate::cli::table::{Paint, Painter, brief, printable};
use crate::cli::{FAILED, explained, fail, history, unheard, utc};

/// More than this waits where it comes from.
const NEWS_MAX: usize = 1_024;

/// Follows until a signal, or until nobody reads any more.
pub(crate) fn watch(config: &Config, endpoint: Option<&EndpointId>, as_json: bool) -> ExitCode {
    // First of all: what it blocks must be blocked in every thread.
    let Ok(signalled) = stop_on_signal() else { return fail(FAILED, &"cannot handle signals") };
    let Begun { followers, refused } = match Follower::begin(config, endpoint) {
        Ok(begun) => begun,
        Err(error) => return fail(FAILED, &printable(&error.to_string())),
    };
    let told = Teller { as_json, ..Teller::default() };
    refused.iter().for_each(|(source, error)| say_refused(*source, error));
    let (source, when) = stop();
    let (tell, news) = bounded(NEWS_MAX);
    let mut threads = Vec::new();
    for follower in followers {
        match follower.spawn(&tell, &when) {
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
            News::Foreign(_) => String::new(),
            News::Away(source, error, _) => self.gone(source, &error),
            News::Back(source) => self.back(source),
            News::Refused(source, error) => {
                self.back(source);
                say_refused(source, &error);
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
}

/// Says on stderr which source this user may not read, and which right it lacks.
pub(crate) fn say_refused(source: Source, error: &str) {
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
