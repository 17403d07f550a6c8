//! `sessions sync` makes the stored sessions those of a file; `sessions export` writes such a file.
//!
//! Each session is compared and set on its own, so a change of another client meanwhile is not overwritten unseen.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::cli::import::{Lines, Progress, checked_lines};
use crate::cli::sessions::{
    ATTEMPTS_MAX, NAMED_MAX, PAUSED_UNTIL, Sessions, sentence, with_fields,
};
use crate::cli::task::Fields;
use crate::cli::{FAILED, fail, say_bytes, warn};
use crate::inspect::status::counted;
use crate::model::{EndpointId, Session};
use crate::store::admin::sessions::SessionCas;
use crate::store::{RawSession, Store};

/// What an operator sets while the file stays as it is.
const OPERATORS: [&str; 2] = ["isPaused", PAUSED_UNTIL];

/// What has to be done with one session.
enum Step {
    Add,
    /// With the names of the fields that differ.
    Change(Vec<String>),
    Remove,
}

/// How many of each.
#[derive(Default)]
struct Done {
    added: usize,
    changed: usize,
    removed: usize,
    unchanged: usize,
    /// Not in the file, and left there.
    kept: usize,
}

impl Sessions<'_> {
    /// One session per line. What cannot be imported again is named on stderr, and makes the exit code 1.
    pub(super) fn export(&self) -> ExitCode {
        let found = match self.store.all_sessions(self.config.store_timeout) {
            Ok(found) => found,
            Err(error) => return fail(FAILED, &error),
        };
        let (mut out, mut left_out) = (Vec::new(), Vec::new());
        for (id, raw) in &found {
            match raw {
                RawSession::Value(bytes) if Session::parse(id.as_str(), bytes).is_ok() => {
                    // Outside of strings a line end is a space, and inside JSON has none.
                    out.extend(
                        bytes.iter().map(|it| if b"\r\n".contains(it) { b' ' } else { *it }),
                    );
                    out.push(b'\n');
                }
                _ => left_out.push(id.as_str()),
            }
        }
        let told = say_bytes(&out);
        if left_out.is_empty() || told != ExitCode::SUCCESS {
            return told;
        }
        let named = left_out.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
        let (n, list) = (counted(left_out.len(), "session"), "leasehold sessions list says why");
        fail(FAILED, &format!("left out {n} that cannot be understood ({named}): {list}"))
    }

    /// Stores what differs from the file, and says how much that was.
    pub(super) fn sync(
        &self,
        from: Option<&Path>,
        dry_run: bool,
        prune: bool,
    ) -> Result<String, String> {
        let Lines { lines, repeated, odd } = checked_lines(from, "synced")?;
        if prune && lines.is_empty() {
            return Err(
                "the file has no session, so --prune would remove them all: to do that, pass \
                        the ids to leasehold sessions remove"
                    .into(),
            );
        }
        let stored = self.store.all_sessions(self.config.store_timeout).map_err(sentence)?;
        let mut stored: BTreeMap<EndpointId, RawSession> = stored.into_iter().collect();
        let (mut done, mut told) = (Done::default(), String::new());
        let progress = Progress::of(lines.len());
        for (n, (id, line)) in lines.iter().enumerate() {
            let step = self.sync_one(id, stored.remove(id), Some(line), dry_run);
            let step = step.map_err(|why| {
                progress.clear();
                format!("{why}; {n} of {} lines were done before that: sync again", lines.len())
            })?;
            done.count(step.as_ref());
            told += &step.map_or(String::new(), |it| it.line(id));
            progress.show(n + 1);
        }
        progress.end();
        let removed: Vec<EndpointId> = stored.keys().filter(|_| prune).cloned().collect();
        for (id, raw) in stored {
            if !prune {
                done.kept += 1;
                continue;
            }
            let step = self.sync_one(&id, Some(raw), None, dry_run)?;
            done.count(step.as_ref());
            told += &step.map_or(String::new(), |it| it.line(&id));
        }
        if !dry_run {
            told.clear();
            self.store.retire(&removed, self.config.store_timeout).map_err(sentence)?;
        }
        odd.tell();
        if repeated > 0 {
            let n = counted(repeated, "line");
            warn(&format!("{n} had an id that came again later: the last one holds"));
        }
        Ok(self.told(told + &done.sentence(dry_run), done.document(repeated, dry_run)))
    }

    /// Makes one session what `line` says, or removes it; `None` if there is nothing to do. Somebody else may change it meanwhile.
    fn sync_one(
        &self,
        id: &EndpointId,
        first: Option<RawSession>,
        line: Option<&Vec<u8>>,
        dry_run: bool,
    ) -> Result<Option<Step>, String> {
        let timeout = self.config.store_timeout;
        let mut stored = first;
        for _ in 0..ATTEMPTS_MAX {
            let before = match &stored {
                None => None,
                Some(RawSession::Value(bytes)) => Some(bytes.clone()),
                Some(_) => {
                    let key = format!("{}{id}", self.config.session_prefix);
                    return Err(format!(
                        "the session {id} cannot be compared: look at the key {key}"
                    ));
                }
            };
            let (step, after) = match (&before, line) {
                (None, None) => return Ok(None),
                (Some(_), None) => (Step::Remove, None),
                (None, Some(line)) => (Step::Add, Some(line.clone())),
                (Some(before), Some(line)) => match changed(before, line) {
                    None => return Ok(None),
                    Some((names, after)) => (Step::Change(names), Some(after)),
                },
            };
            let cas = SessionCas { before, after };
            if dry_run || self.store.cas_session(id, &cas, timeout).map_err(sentence)? {
                return Ok(Some(step));
            }
            stored = self.store.session(id, timeout).map_err(sentence)?;
        }
        Err(format!("the session {id} is being changed by somebody else all the time"))
    }
}

/// The fields in which the stored session differs from the line, and what is to be stored instead; `None` if they say the same.
fn changed(stored: &[u8], line: &[u8]) -> Option<(Vec<String>, Vec<u8>)> {
    let object = |it: &[u8]| serde_json::from_slice::<Map<String, Value>>(it).ok();
    let wanted = object(line)?;
    let stored = object(stored).unwrap_or_default();
    let says_so = OPERATORS.iter().any(|it| wanted.contains_key(*it));
    let kept = OPERATORS.iter().filter(|_| !says_so);
    let kept: Fields =
        kept.filter_map(|it| Some(((*it).to_owned(), stored.get(*it)?.clone()))).collect();
    let after = with_fields(std::str::from_utf8(line).ok()?, &kept)?;
    let wanted: Map<String, Value> = wanted.into_iter().chain(kept).collect();
    let names = stored.keys().chain(wanted.keys());
    let mut names: Vec<String> =
        names.filter(|it| stored.get(*it) != wanted.get(*it)).cloned().collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| (names, after.into_bytes()))
}

impl Step {
    fn line(&self, id: &EndpointId) -> String {
        match self {
            Self::Add => format!("add {id}\n"),
            Self::Change(names) => format!("change {id}: {}\n", names.join(", ")),
            Self::Remove => format!("remove {id}\n"),
        }
    }
}

impl Done {
    fn count(&mut self, step: Option<&Step>) {
        match step {
            None => self.unchanged += 1,
            Some(Step::Add) => self.added += 1,
            Some(Step::Change(_)) => self.changed += 1,
            Some(Step::Remove) => self.removed += 1,
        }
    }

    fn sentence(&self, dry_run: bool) -> String {
        let Self { added, changed, removed, unchanged, kept } = self;
        let mut words = match dry_run {
            true => format!("{added} to add, {changed} to change, {removed} to remove"),
            false => format!("{added} added, {changed} changed, {removed} removed"),
        };
        words += &format!(", {unchanged} as they were");
        if *kept > 0 {
            words += &format!("; {kept} not in the file: --prune removes them");
        }
        words + "\n"
    }

    fn document(&self, repeated: usize, dry_run: bool) -> Value {
        json!({
            "added": self.added,
            "changed": self.changed,
            "removed": self.removed,
            "unchanged": self.unchanged,
            "kept": self.kept,
            "repeated": repeated,
            "dryRun": dry_run,
        })
    }
}
