//! `leasehold get`: one endpoint, with everything that is stored about it.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::explain::unknown;
use crate::cli::plan::overview;
use crate::cli::status::{endpoint_document, millis, without_controls};
use crate::cli::table::{brief, printable};
use crate::cli::task::STALE_AFTER;
use crate::cli::{FAILED, fail, say, say_bytes, utc};
use crate::config::Config;
use crate::inspect::status::{EndpointStatus, State, Status, counted};
use crate::model::{EndpointId, Verdict};
use crate::store::admin::overview::LastResult;
use crate::store::redis::RedisStore;
use crate::store::{RawSession, StoreError};

/// Shows it, or the body of its last result.
pub(crate) fn get(config: &Config, endpoint: &EndpointId, body: bool, as_json: bool) -> ExitCode {
    match found(config, endpoint, body) {
        Err(why) => fail(FAILED, &why),
        Ok(found) if as_json => say(&without_controls(&format!("{:#}\n", document(&found, body)))),
        Ok(Found { body: stored, .. }) if body => match stored {
            None => fail(FAILED, &format!("{endpoint} has no result yet, so there is no body")),
            Some(it) if io::stdout().is_terminal() => say(&on_terminal(&it)),
            Some(it) => say_bytes(&it),
        },
        Ok(found) => say(&page(&found)),
    }
}

struct Found {
    status: Status,
    name: Option<String>,
    body: Option<Vec<u8>>,
}

fn found(config: &Config, id: &EndpointId, body: bool) -> Result<Found, String> {
    let (store, timeout) = (RedisStore::of_endpoints(config), config.store_timeout);
    let said = |error: StoreError| printable(&error.to_string());
    let one = store.overview_of(id, timeout).map_err(said)?;
    if one.endpoints.is_empty() {
        return Err(unknown(&Status::of(overview(config)?, STALE_AFTER), id));
    }
    let name = one.endpoints.first().and_then(|it| name_in(it.session.as_ref()?));
    let body = match body {
        true => store.last_body(id, timeout).map_err(said)?,
        false => None,
    };
    Ok(Found { status: Status::of(one, STALE_AFTER), name, body })
}

fn name_in(session: &RawSession) -> Option<String> {
    let RawSession::Value(bytes) = session else { return None };
    let fields: Value = serde_json::from_slice(bytes).ok()?;
    fields.get("name")?.as_str().map(String::from)
}

/// How long until its next poll, as far as its last result tells; `None` where none is to come.
fn next_poll(it: &EndpointStatus) -> Option<Duration> {
    let polled = it.owner_lives && it.address().is_some() && it.state != State::Paused;
    let (interval, age) = (it.interval?, it.age?);
    polled.then(|| interval.saturating_sub(age))
}

fn document(found: &Found, with_body: bool) -> Value {
    let Some(it) = found.status.endpoints.first() else { return Value::Null };
    let mut document = endpoint_document(it);
    if let Some(fields) = document.as_object_mut() {
        // Which owner is preferred depends on all endpoints, and these were not read.
        fields.remove("preferredOwner");
        fields.insert("name".into(), json!(found.name));
        fields.insert("nextPollMs".into(), json!(next_poll(it).map(millis)));
        if with_body {
            let text = found.body.as_deref().map(String::from_utf8_lossy);
            fields.insert("body".into(), json!(text));
        }
    }
    document
}

fn page(found: &Found) -> String {
    let Some(it) = found.status.endpoints.first() else { return String::new() };
    let mut rows: Vec<(&str, String)> = vec![("endpoint", it.name.clone())];
    let mut add = |name, text: Option<String>| rows.extend(text.map(|it| (name, it)));
    add("name", found.name.clone());
    add("address", it.address().map(ToString::to_string));
    add("state", Some(it.state.word().into()));
    add("session", it.invalid().map(ToString::to_string));
    add("verdict", it.result.as_ref().map(|result| verdict(result, &found.status)));
    add("last result", it.result.as_ref().map(|result| last(it, result)));
    add("error", it.result.as_ref().and_then(|it| it.error.clone()));
    add("next poll", next_poll(it).map(|left| next(left, it.interval)));
    add("owner", Some(owner(it)));
    let line = |(name, text): &(&str, String)| format!("{name:<12}{}\n", printable(text));
    rows.iter().map(line).collect()
}

fn verdict(result: &LastResult, status: &Status) -> String {
    let mut words = result.verdict().map_or("none yet", Verdict::as_str).to_owned();
    if let Some(since_ms) = result.verdict_since_ms() {
        let ago = Duration::from_millis(status.server_ms.saturating_sub(since_ms));
        words += &format!(" since {}, for {}", utc::date_and_time(since_ms), brief(ago));
    }
    if let Some(state) = result.state.filter(|it| it.failures > 0) {
        let n = usize::try_from(state.failures).unwrap_or(usize::MAX);
        words += &format!(", {} in a row", counted(n, "failure"));
    }
    words
}

fn last(it: &EndpointStatus, result: &LastResult) -> String {
    let mut words = String::from(if result.ok { "ok" } else { "failed" });
    words += &result.status.map_or(String::new(), |it| format!(" {it}"));
    words += &result.duration_ms.map_or(String::new(), |it| format!(" in {it} ms"));
    words += &it.age.map_or(String::new(), |it| format!(", {} ago", brief(it)));
    words += &result.instance.as_ref().map_or(String::new(), |it| format!(", by {it}"));
    words + &result.fence.map_or(String::new(), |it| format!(", fence {it}"))
}

fn next(left: Duration, interval: Option<Duration>) -> String {
    let every = interval.map_or(String::new(), |it| format!(", every {}", brief(it)));
    match left.is_zero() {
        true => format!("now{every}"),
        false => format!("in {}{every}", brief(left)),
    }
}

fn owner(it: &EndpointStatus) -> String {
    match &it.lease {
        None => "nobody".into(),
        Some(lease) if !it.owner_lives => format!("{}, which has no heartbeat", lease.value),
        Some(lease) => format!("{}, {} left of the lease", lease.value, brief(lease.left)),
    }
}

/// A body may hold anything, and lines are the only thing in it that a terminal needs.
fn on_terminal(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.lines().map(|it| printable(it) + "\n").collect()
}
