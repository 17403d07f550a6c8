//! Which host ran the command of a role, when, and how did it end? One capped stream for all roles, and the last success of each.
//!
//! Written by `lead` and `once`, while they lead the role: what is there about a term is complete when the next one begins.

use std::time::Duration;

use redis::{ConnectionLike, Value};

use crate::model::{EndpointId, FenceToken, InstanceId};
use crate::store::StoreResult;
use crate::store::admin::overview::text;
use crate::store::history::KEPT;
use crate::store::redis::RedisStore;
use crate::store::redis::scan::of_wrong_type;

/// How many entries are read at a time.
const PAGE: usize = 1_000;
/// The longest text of an entry that is written or read.
const TEXT_MAX_CHARS: usize = 255;

/// What is to be remembered of a run.
#[derive(Clone, Debug)]
pub struct RunNote<'a> {
    /// `started`, `ended` or `skipped`.
    pub event: &'static str,
    pub role: &'a EndpointId,
    pub instance: &'a InstanceId,
    /// Under which term; of one that was skipped, there is none.
    pub term: Option<FenceToken>,
    /// The exit code of one that ended.
    pub code: Option<u8>,
    /// Why it ended or did not start, where that is not the command's own doing.
    pub reason: &'a str,
    /// Who led, when it was skipped.
    pub owner: Option<&'a InstanceId>,
}

/// An entry as read; any client may have written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub id: String,
    /// When it was written, by the server's clock.
    pub at_ms: u64,
    pub event: String,
    pub role: String,
    pub instance: String,
    pub term: Option<FenceToken>,
    pub code: Option<u8>,
    pub reason: Option<String>,
    pub owner: Option<String>,
}

impl RedisStore {
    /// Appends it; when that was, by the server's clock.
    pub fn note_run(&self, note: &RunNote<'_>, timeout: Duration) -> StoreResult<u64> {
        let (op, key) = ("write the history of runs on", self.server.keys.runs());
        let mut add = redis::cmd("XADD");
        add.arg(&key).arg("MAXLEN").arg("~").arg(KEPT).arg("*");
        add.arg("event").arg(note.event).arg("role").arg(note.role.as_str());
        add.arg("instance").arg(note.instance.as_str());
        if let Some(term) = note.term {
            add.arg("term").arg(term.0);
        }
        if let Some(code) = note.code {
            add.arg("code").arg(code);
        }
        if let Some(owner) = note.owner {
            add.arg("owner").arg(owner.as_str());
        }
        if !note.reason.is_empty() {
            add.arg("reason").arg(note.reason.chars().take(TEXT_MAX_CHARS).collect::<String>());
        }
        let id: Value = self
            .call(op, timeout, |connection| add.query(connection))
            .map_err(|error| of_wrong_type(error, &key, "a stream"))?;
        text(&id).as_deref().and_then(at_ms).ok_or_else(|| self.server.unexpected(op))
    }

    /// Remembers that the last run of `role` which succeeded began then.
    pub fn note_success(
        &self,
        role: &EndpointId,
        started_ms: u64,
        timeout: Duration,
    ) -> StoreResult<()> {
        let key = self.server.keys.last_runs();
        self.call("write the last run on", timeout, |connection| {
            redis::cmd("HSET").arg(&key).arg(role.as_str()).arg(started_ms).exec(connection)
        })
        .map_err(|error| of_wrong_type(error, &key, "a hash"))
    }

    /// How long ago the last run of `role` which succeeded began; `None` if none is known.
    pub fn last_success(
        &self,
        role: &EndpointId,
        timeout: Duration,
    ) -> StoreResult<Option<Duration>> {
        let (op, key) = ("read the last run on", self.server.keys.last_runs());
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(&key).arg(role.as_str());
        let found = self.call(op, timeout, |connection| {
            let answers = connection.req_packed_commands(&pipe.get_packed_pipeline(), 0, 1)?;
            answers.into_iter().map(Value::extract_error).collect::<Result<Vec<Value>, _>>()
        });
        let found = found.map_err(|error| of_wrong_type(error, &key, "a hash"))?;
        let started_ms: Option<u64> = found.first().and_then(text).and_then(|it| it.parse().ok());
        let Some(started_ms) = started_ms else { return Ok(None) };
        let ago = self.server_ms(timeout)?.saturating_sub(started_ms);
        Ok(Some(Duration::from_millis(ago)))
    }

    /// The last entries of `role`, the newest first, at most `limit`.
    pub fn runs(
        &self,
        role: &EndpointId,
        limit: usize,
        timeout: Duration,
    ) -> StoreResult<Vec<Run>> {
        self.runs_while(role, timeout, |found, _| found < limit)
    }

    /// The entries of `role` under this term or a later one, the newest first.
    pub fn runs_since(
        &self,
        role: &EndpointId,
        term: FenceToken,
        timeout: Duration,
    ) -> StoreResult<Vec<Run>> {
        self.runs_while(role, timeout, |_, it| it.term.is_none_or(|it| it >= term))
    }

    /// Back page by page; `wanted` gets how many were found before, and the next one.
    fn runs_while(
        &self,
        role: &EndpointId,
        timeout: Duration,
        wanted: impl Fn(usize, &Run) -> bool,
    ) -> StoreResult<Vec<Run>> {
        let (op, key) = ("read the history of runs on", self.server.keys.runs());
        let (mut found, mut from, mut n_read) = (Vec::new(), String::from("+"), 0);
        loop {
            let value: Value = self
                .call(op, timeout, |connection| {
                    let mut range = redis::cmd("XREVRANGE");
                    range.arg(&key).arg(&from).arg("-").arg("COUNT").arg(PAGE).query(connection)
                })
                .map_err(|error| of_wrong_type(error, &key, "a stream"))?;
            let Value::Array(page) = value else { return Err(self.server.unexpected(op)) };
            n_read += page.len();
            for it in &page {
                let run = run(it).ok_or_else(|| self.server.unexpected(op))?;
                from = format!("({}", run.id);
                if run.role != role.as_str() {
                    continue;
                }
                if !wanted(found.len(), &run) {
                    return Ok(found);
                }
                found.push(run);
            }
            if page.len() < PAGE || n_read >= 2 * KEPT {
                return Ok(found);
            }
        }
    }
}

fn at_ms(id: &str) -> Option<u64> {
    id.split('-').next()?.parse().ok()
}

fn run(value: &Value) -> Option<Run> {
    let Value::Array(parts) = value else { return None };
    let [id, Value::Array(fields)] = &parts[..] else { return None };
    let id = text(id)?;
    let field = |name: &str| {
        let named =
            |it: &&[Value]| matches!(&it[0], Value::BulkString(it) if it == name.as_bytes());
        let found = fields.chunks_exact(2).find(named).and_then(|it| text(&it[1]))?;
        Some(found.chars().take(TEXT_MAX_CHARS).collect::<String>())
    };
    Some(Run {
        at_ms: at_ms(&id)?,
        event: field("event").unwrap_or_default(),
        role: field("role").unwrap_or_default(),
        instance: field("instance").unwrap_or_default(),
        term: field("term").and_then(|it| it.parse().ok()).map(FenceToken),
        code: field("code").and_then(|it| it.parse().ok()),
        reason: field("reason"),
        owner: field("owner"),
        id,
    })
}
