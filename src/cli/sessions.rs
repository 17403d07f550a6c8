//! `leasehold sessions`: lists and changes the sessions that the fleet polls.

mod sync;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::config::Config;
use crate::fleet::session_cache::understood_with_odd_fields;
use crate::inspect::status::{EndpointStatus, State, Status, counted};
use crate::model::{
    EndpointId, InvalidId, MOMENT_MS_MAX, OddField, Session, SessionError, with_field,
};
use crate::store::admin::sessions::{Imported, SessionCas};
use crate::store::redis::RedisStore;
use crate::store::{BATCH_MAX, RawSession, Store, StoreError};
use fnv::FnvHashMap;
use serde_json::{Value, json};

use crate::cli::import::{Lines, Progress, checked_lines};
use crate::cli::status::{paint, without_controls};
use crate::cli::table::{Cell, Paint, Painter, Side, Table, printable};
use crate::cli::task::{Fields, STALE_AFTER, SessionsVerb};
use crate::cli::{FAILED, fail, say, warn};

/// Another client may change a session at the same moment, but not for ever.
const ATTEMPTS_MAX: usize = 5;
/// At most this many lines are named that cannot be understood, or were done before a failure.
pub(crate) const NAMED_MAX: usize = 10;

/// Does it, and says what came of it.
pub(crate) fn sessions(config: &Config, verb: SessionsVerb, as_json: bool) -> ExitCode {
    let store = RedisStore::of_endpoints(config);
    let sessions = Sessions { config, store, as_json };
    let done = match verb {
        SessionsVerb::List => sessions.list(),
        SessionsVerb::Add { id, fields } => sessions.add(id, &fields),
        SessionsVerb::Set { id, fields } => sessions.set(&id, &fields),
        SessionsVerb::Pause { ids, lasts } => sessions.set_paused(&ids, true, lasts),
        SessionsVerb::Resume(ids) => sessions.set_paused(&ids, false, None),
        SessionsVerb::Remove(ids) => sessions.remove(&ids),
        SessionsVerb::Export => return sessions.export(),
        SessionsVerb::Import(from) => sessions.import(from.as_deref()),
        SessionsVerb::Sync { from, dry_run, prune } => {
            sessions.sync(from.as_deref(), dry_run, prune)
        }
    };
    match done {
        Ok(text) => say(&text),
        Err(why) => fail(FAILED, &why),
    }
}

struct Sessions<'a> {
    config: &'a Config,
    store: RedisStore,
    /// For programs.
    as_json: bool,
}

fn sentence(error: StoreError) -> String {
    error.to_string()
}

impl Sessions<'_> {
    /// What is done, as text or as a document.
    fn told(&self, text: String, document: Value) -> String {
        if self.as_json { format!("{document:#}\n") } else { text }
    }

    fn list(&self) -> Result<String, String> {
        let overview = self.store.overview(self.config.store_timeout).map_err(sentence)?;
        let misnamed = overview.misnamed.clone();
        let sessions = overview.endpoints.iter();
        let found: Vec<(EndpointId, RawSession)> =
            sessions.filter_map(|it| Some((it.id.clone(), it.session.clone()?))).collect();
        let server_ms = overview.server_ms;
        let status = Status::of(overview, STALE_AFTER);
        let status = status.endpoints.iter().map(|it| (it.name.as_str(), it)).collect();
        let why = SessionError::Key(InvalidId).to_string();
        if self.as_json {
            let misnamed = misnamed.iter().map(|name| {
                json!({
                    "id": name, "paused": null, "error": why, "session": null, "state": "invalid",
                    "owner": null, "ignored": [],
                })
            });
            let found = found.iter().map(|(id, raw)| document(id, raw, &status, server_ms));
            let list: Vec<Value> = found.chain(misnamed).collect();
            return Ok(without_controls(&format!("{:#}\n", json!({ "sessions": list }))));
        }
        let mut table =
            Table::new(&[("SESSION", Side::Left), ("ADDRESS", Side::Left), ("STATE", Side::Left)]);
        for (id, raw) in &found {
            let (address, state) = match understood_with_odd_fields(id, raw) {
                Ok((it, odd)) => (it.address.to_string(), polled(&status, id, &odd)),
                Err(error) => ("-".into(), Cell::painted(&error.to_string(), Paint::Bad)),
            };
            table.row(vec![Cell::new(id.as_str()), Cell::new(&address), state]);
        }
        for name in &misnamed {
            table.row(vec![Cell::new(name), Cell::new("-"), Cell::painted(&why, Paint::Bad)]);
        }
        Ok(match found.len() + misnamed.len() {
            0 => "no sessions stored\n".into(),
            _ => table.shown(Painter::for_stdout()),
        })
    }

    fn add(&self, id: Option<EndpointId>, given: &Fields) -> Result<String, String> {
        let fresh = || EndpointId::parse(&uuid::Uuid::new_v4().to_string());
        let id = id.map_or_else(fresh, Ok).map_err(|error| error.to_string())?;
        let mut fields = serde_json::Map::new();
        fields.insert("id".into(), id.as_str().into());
        fields.extend(given.iter().cloned());
        let text = Value::Object(fields).to_string();
        checked(&id, &text, given)?;
        let cas = SessionCas { before: None, after: Some(text.into_bytes()) };
        match self.store.cas_session(&id, &cas, self.config.store_timeout).map_err(sentence)? {
            true => Ok(self.told(format!("{id}\n"), json!({ "id": id.as_str() }))),
            false => Err(format!(
                "there is a session {id} already: remove it first, or give another --id"
            )),
        }
    }

    fn set(&self, id: &EndpointId, fields: &Fields) -> Result<String, String> {
        self.change_each(std::slice::from_ref(id), "changed", |raw| {
            let text = with_fields(text_of(raw)?, fields).ok_or("is not a JSON object")?;
            checked(id, &text, fields).map_err(|why| format!("would be wrong: {why}"))?;
            Ok(Some(text.into_bytes()))
        })
    }

    /// An end that was set before does not outlive the pause that it belongs to.
    fn set_paused(
        &self,
        ids: &[EndpointId],
        paused: bool,
        lasts: Option<Duration>,
    ) -> Result<String, String> {
        let word = if paused { "paused" } else { "resumed" };
        let until = match lasts {
            None => Value::Null,
            Some(lasts) => {
                let now = self.store.server_ms(self.config.store_timeout).map_err(sentence)?;
                let ms = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
                now.saturating_add(ms).min(MOMENT_MS_MAX).into()
            }
        };
        self.change_each(ids, word, |raw| {
            let text = text_of(raw)?;
            let mut fields: Fields = vec![("isPaused".into(), paused.into())];
            if !until.is_null() || has_field(text, PAUSED_UNTIL) {
                fields.push((PAUSED_UNTIL.into(), until.clone()));
            }
            let changed = with_fields(text, &fields).map(|it| Some(it.into_bytes()));
            changed.ok_or_else(|| "is not a JSON object".into())
        })
    }

    fn remove(&self, ids: &[EndpointId]) -> Result<String, String> {
        let told = self.change_each(ids, "removed", |_| Ok(None));
        // The owner does this when it gives a lease back. Here it is for the endpoints that nobody owns.
        let retired = self.store.retire(ids, self.config.store_timeout);
        let told = told?;
        retired.map_err(|error| {
            format!("removed, but what is remembered of them may never end: {error}")
        })?;
        Ok(told)
    }

    /// Compare and set, each session on its own; what was done before a failure is told with it.
    fn change_each(
        &self,
        ids: &[EndpointId],
        word: &str,
        change: impl Fn(&RawSession) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<String, String> {
        let mut done = String::new();
        for (n, id) in ids.iter().enumerate() {
            match self.change(id, &change) {
                Ok(()) => done += &format!("{word} {id}\n"),
                Err(why) if done.is_empty() => return Err(why),
                Err(why) => return Err(format!("{why}; done before that: {}", so_far(&done, n))),
            }
        }
        let ids: Vec<&str> = ids.iter().map(EndpointId::as_str).collect();
        Ok(self.told(done, json!({ word: ids })))
    }

    fn change(
        &self,
        id: &EndpointId,
        change: &impl Fn(&RawSession) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<(), String> {
        let timeout = self.config.store_timeout;
        for _ in 0..ATTEMPTS_MAX {
            let Some(raw) = self.store.session(id, timeout).map_err(sentence)? else {
                return Err(format!("there is no session {id}: see leasehold sessions list"));
            };
            let after = change(&raw).map_err(|why| format!("the session {id} {why}"))?;
            let RawSession::Value(before) = raw else {
                // What cannot be read cannot be compared, and so is not ours to remove.
                let key = format!("{}{id}", self.config.session_prefix);
                return Err(format!("the session {id} cannot be compared: look at the key {key}"));
            };
            let cas = SessionCas { before: Some(before), after };
            if self.store.cas_session(id, &cas, timeout).map_err(sentence)? {
                return Ok(());
            }
        }
        Err(format!("the session {id} is being changed by somebody else all the time: try again"))
    }

    fn import(&self, from: Option<&Path>) -> Result<String, String> {
        let Lines { lines, repeated, odd } = checked_lines(from, "imported")?;
        let (mut imported, total) = (Imported::default(), lines.len());
        let progress = Progress::of(total);
        for batch in lines.chunks(BATCH_MAX) {
            let stored = self.store.store_sessions(batch, self.config.store_timeout);
            let stored = stored.map_err(|error| {
                progress.clear();
                let n = imported.total();
                format!("{error}; {n} of {total} sessions were stored before that: import again")
            })?;
            imported += stored;
            progress.show(imported.total());
        }
        progress.end();
        odd.tell();
        let Imported { added, changed, unchanged } = imported;
        let again = match repeated {
            0 => String::new(),
            n => format!(
                "; {} had an id that came again later: the last one holds",
                counted(n, "line")
            ),
        };
        let text = format!("{added} added, {changed} changed, {unchanged} as they were{again}\n");
        let document = json!({
            "added": added, "changed": changed, "unchanged": unchanged, "repeated": repeated,
        });
        Ok(self.told(text, document))
    }
}

/// The field with the end of a pause.
const PAUSED_UNTIL: &str = "pausedUntilMs";

fn text_of(raw: &RawSession) -> Result<&str, String> {
    let RawSession::Value(bytes) = raw else { return Err("is not a string".into()) };
    std::str::from_utf8(bytes).map_err(|_| "is not a JSON object".into())
}

fn has_field(document: &str, name: &str) -> bool {
    let parsed: Option<Value> = serde_json::from_str(document).ok();
    parsed.is_some_and(|it| it.get(name).is_some())
}

/// `None` if `document` is no JSON object.
fn with_fields(document: &str, fields: &Fields) -> Option<String> {
    let first = Some(document.to_owned());
    fields.iter().fold(first, |text, (name, value)| with_field(&text?, name, &value.to_string()))
}

/// An error for a session that makes no sense; a warning for each of the `given` fields that means nothing and looks like one
/// that does.
fn checked(id: &EndpointId, text: &str, given: &Fields) -> Result<(), String> {
    let read = Session::parse_with_odd_fields(id.as_str(), text.as_bytes());
    let (_, odd) = read.map_err(|error| error.to_string())?;
    let given = odd.iter().filter(|it| given.iter().any(|(name, _)| *name == it.name));
    given.for_each(|it| warn(&printable(&it.to_string())));
    Ok(())
}

/// The last few of `n` lines in one line.
fn so_far(done: &str, n: usize) -> String {
    let lines: Vec<&str> = done.lines().skip(n.saturating_sub(NAMED_MAX)).collect();
    match n.saturating_sub(NAMED_MAX) {
        0 => lines.join(", "),
        more => format!("{more} more, then {}", lines.join(", ")),
    }
}

/// How each endpoint stands, by its name.
type States<'a> = FnvHashMap<&'a str, &'a EndpointStatus>;

/// Whether an instance polls it; if not, the state that `status` shows. With the fields that are ignored.
fn polled(states: &States<'_>, id: &EndpointId, odd: &[OddField]) -> Cell {
    let state = states.get(id.as_str()).map_or(State::Unowned, |it| it.state);
    let (word, paint) = match state {
        State::Ok => ("polled", Paint::Plain),
        State::Paused => ("paused", Paint::Watch),
        other => (other.word(), paint(other.alarm())),
    };
    let text: Vec<String> =
        [word.to_owned()].into_iter().chain(odd.iter().map(ToString::to_string)).collect();
    let paint = if odd.is_empty() { paint } else { Paint::Watch };
    Cell::painted(&text.join("; "), paint)
}

fn document(id: &EndpointId, raw: &RawSession, states: &States<'_>, server_ms: u64) -> Value {
    let read = understood_with_odd_fields(id, raw);
    let ignored: Vec<&str> = read.iter().flat_map(|it| &it.1).map(|it| it.name.as_str()).collect();
    let state = states.get(id.as_str());
    let session = read.as_ref().map(|it| &it.0);
    let stored = match raw {
        RawSession::Value(bytes) => serde_json::from_slice::<Value>(bytes).ok(),
        _ => None,
    };
    json!({
        "id": id.as_str(),
        "paused": session.as_ref().ok().map(|it| it.is_paused_at(Some(server_ms))),
        "error": session.as_ref().err().map(ToString::to_string),
        "session": stored,
        "state": state.map(|it| it.state.word()),
        "owner": state.and_then(|it| it.lease.as_ref()).map(|it| it.value.as_str()),
        "ignored": ignored,
    })
}
