//! `leasehold sessions`: what is to be polled, read and changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use leasehold::config::Config;
use leasehold::model::{
    Address, EndpointId, InvalidId, SESSION_MAX_BYTES, Session, SessionError, with_field,
};
use leasehold::pipeline::discovery::understood;
use leasehold::status::counted;
use leasehold::store::redis::RedisStore;
use leasehold::store::sessions::{AllSessions, Imported, Swap};
use leasehold::store::{BATCH_MAX, RawSession, Store, StoreError};
use serde_json::{Value, json};

use crate::cli::status::without_controls;
use crate::cli::table::{Cell, Paint, Painter, Side, Table};
use crate::cli::task::SessionsVerb;
use crate::cli::{FAILED, fail, say};

/// Somebody else may change a session at the same moment, but not for ever.
const ATTEMPTS_MAX: usize = 5;
/// So many lines that cannot be understood, or were done before a failure, are named.
const NAMED_MAX: usize = 10;

/// Does it, and says what came of it.
pub(crate) fn sessions(config: &Config, verb: SessionsVerb, as_json: bool) -> ExitCode {
    let store = RedisStore::of_polls(config);
    let sessions = Sessions { config, store, as_json };
    let done = match verb {
        SessionsVerb::List => sessions.list(),
        SessionsVerb::Add { address, id, name } => sessions.add(&address, id, name.as_deref()),
        SessionsVerb::Pause(ids) => sessions.set_paused(&ids, true),
        SessionsVerb::Resume(ids) => sessions.set_paused(&ids, false),
        SessionsVerb::Remove(ids) => sessions.remove(&ids),
        SessionsVerb::Import(from) => sessions.import(from.as_deref()),
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
        let all = self.store.all_sessions(self.config.store_timeout).map_err(sentence)?;
        let AllSessions { found, misnamed } = all;
        let why = SessionError::Key(InvalidId).to_string();
        if self.as_json {
            let misnamed = misnamed
                .iter()
                .map(|name| json!({ "id": name, "paused": null, "error": why, "session": null }));
            let found = found.iter().map(|(id, raw)| document(id, raw));
            let list: Vec<Value> = found.chain(misnamed).collect();
            return Ok(without_controls(&format!("{:#}\n", json!({ "sessions": list }))));
        }
        let mut table =
            Table::new(&[("SESSION", Side::Left), ("ADDRESS", Side::Left), ("STATE", Side::Left)]);
        for (id, raw) in &found {
            let (address, state) = match understood(id, raw) {
                Ok(it) if it.paused => (shown(&it), Cell::painted("paused", Paint::Watch)),
                Ok(it) => (shown(&it), Cell::new("polled")),
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

    fn add(
        &self,
        address: &str,
        id: Option<EndpointId>,
        name: Option<&str>,
    ) -> Result<String, String> {
        let fresh = || EndpointId::parse(&uuid::Uuid::new_v4().to_string());
        let id = id.map_or_else(fresh, Ok).map_err(|error| error.to_string())?;
        let mut fields = serde_json::Map::new();
        fields.insert("id".into(), id.as_str().into());
        fields.insert("address".into(), address.into());
        fields.extend(name.map(|it| ("name".into(), it.into())));
        let text = Value::Object(fields).to_string();
        Session::parse(id.as_str(), text.as_bytes()).map_err(|error| error.to_string())?;
        let swap = Swap { before: None, after: Some(text.into_bytes()) };
        match self.store.swap_session(&id, &swap, self.config.store_timeout).map_err(sentence)? {
            true => Ok(self.told(format!("{id}\n"), json!({ "id": id.as_str() }))),
            false => Err(format!(
                "there is a session {id} already: remove it first, or give another --id"
            )),
        }
    }

    fn set_paused(&self, ids: &[EndpointId], paused: bool) -> Result<String, String> {
        let word = if paused { "paused" } else { "resumed" };
        let change =
            |text: &str| with_field(text, "isPaused", if paused { "true" } else { "false" });
        self.change_each(ids, word, |raw| {
            let bytes = match raw {
                RawSession::Value(bytes) => bytes,
                _ => return Err("is not a string".into()),
            };
            let text = std::str::from_utf8(bytes).ok().and_then(change);
            text.map(|it| Some(it.into_bytes())).ok_or_else(|| "is not a JSON object".into())
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
            let swap = Swap { before: Some(before), after };
            if self.store.swap_session(id, &swap, timeout).map_err(sentence)? {
                return Ok(());
            }
        }
        Err(format!("the session {id} is being changed by somebody else all the time: try again"))
    }

    fn import(&self, from: Option<&Path>) -> Result<String, String> {
        let Lines { lines, repeated } = checked_lines(from)?;
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

/// The last few of `n` lines in one line.
fn so_far(done: &str, n: usize) -> String {
    let lines: Vec<&str> = done.lines().skip(n.saturating_sub(NAMED_MAX)).collect();
    match n.saturating_sub(NAMED_MAX) {
        0 => lines.join(", "),
        more => format!("{more} more, then {}", lines.join(", ")),
    }
}

fn shown(session: &Session) -> String {
    match &session.address {
        Address::Http(url) => url.clone(),
        Address::Tcp(authority) => format!("tcp://{authority}"),
    }
}

fn document(id: &EndpointId, raw: &RawSession) -> Value {
    let session = understood(id, raw);
    let stored = match raw {
        RawSession::Value(bytes) => serde_json::from_slice::<Value>(bytes).ok(),
        _ => None,
    };
    json!({
        "id": id.as_str(),
        "paused": session.as_ref().ok().map(|it| it.paused),
        "error": session.as_ref().err().map(ToString::to_string),
        "session": stored,
    })
}

/// What is to be imported.
struct Lines {
    lines: Vec<(EndpointId, Vec<u8>)>,
    /// How many lines do not count, because a later one has the same id.
    repeated: usize,
}

/// Every line, or what is wrong with the first few: nothing is stored unless all of it can be.
fn checked_lines(from: Option<&Path>) -> Result<Lines, String> {
    let input: Box<dyn Read> = match from {
        None => Box::new(io::stdin()),
        Some(path) => {
            let opened = File::open(path);
            Box::new(opened.map_err(|error| format!("cannot read {}: {error}", path.display()))?)
        }
    };
    let name = from.map_or_else(|| "stdin".into(), |it| PathBuf::from(it).display().to_string());
    let (mut lines, mut wrong) = (BTreeMap::new(), Vec::new());
    let mut reader = BufReader::new(input);
    let (mut n_wrong, mut repeated) = (0, 0);
    for number in 1.. {
        let mut line = Vec::new();
        // One byte more than fits is enough to see that it does not.
        let limit = SESSION_MAX_BYTES as u64 + 2;
        let read = reader.by_ref().take(limit).read_until(b'\n', &mut line);
        if read.map_err(|error| format!("cannot read {name}: {error}"))? == 0 {
            break;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match session_in(text) {
            Ok(id) => repeated += usize::from(lines.insert(id, text.to_vec()).is_some()),
            Err(why) => {
                n_wrong += 1;
                if wrong.len() < NAMED_MAX {
                    wrong.push(format!("line {number}: {why}"));
                }
            }
        }
    }
    if n_wrong > 0 {
        let wrong = wrong.join("; ");
        return Err(format!("nothing was imported: {n_wrong} lines of {name} are wrong: {wrong}"));
    }
    Ok(Lines { lines: lines.into_iter().collect(), repeated })
}

fn session_in(text: &[u8]) -> Result<EndpointId, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let id = value.get("id").and_then(Value::as_str).ok_or("id is missing")?;
    let session = Session::parse(id, text).map_err(|error| error.to_string())?;
    Ok(session.endpoint)
}

/// A bar on a terminal, and nothing elsewhere.
struct Progress {
    total: usize,
    is_shown: bool,
}

impl Progress {
    const WIDTH: usize = 40;

    fn of(total: usize) -> Self {
        Self { total, is_shown: total > BATCH_MAX && io::stderr().is_terminal() }
    }

    fn show(&self, done: usize) {
        if self.is_shown {
            let full = Self::WIDTH * done / self.total.max(1);
            let (bar, rest) = ("#".repeat(full), ".".repeat(Self::WIDTH - full.min(Self::WIDTH)));
            let line = format!("\r[{bar}{rest}] {done} of {}", self.total);
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }

    /// Whatever is said next stands on a line of its own.
    fn clear(&self) {
        if self.is_shown {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }

    fn end(&self) {
        if self.is_shown {
            let _ = io::stderr().write_all(b"\n");
        }
    }
}
