//! How are entries of `poll:history` written and read? One stream, in pages.

use std::time::Duration;

use redis::{ConnectionLike, Value};

use crate::model::{FenceToken, InstanceId, Tenure};
use crate::store::StoreResult;
use crate::store::announcement;
use crate::store::history::{Entry, KEPT, Note, Stream};
use crate::store::redis::RedisStore;
use crate::store::redis::scan::of_wrong_type;

/// How many are read at a time.
const PAGE: usize = 1_000;
/// The longest text of an entry that is read. Nothing of ours is half as long.
const TEXT_MAX_CHARS: usize = 255;

impl RedisStore {
    /// One exchange for all of them. The first refusal is the answer.
    pub(crate) fn append_notes(&self, notes: &[Note], timeout: Duration) -> StoreResult<()> {
        if notes.is_empty() {
            return Ok(());
        }
        let key = self.server.keys.history();
        let mut pipe = redis::pipe();
        for note in notes {
            let add = pipe.cmd("XADD").arg(&key).arg("MAXLEN").arg("~").arg(KEPT).arg("*");
            add.arg("event").arg(note.event).arg("instance").arg(note.instance.as_str());
            if let Some(Tenure { endpoint, fence }) = &note.tenure {
                add.arg("endpoint").arg(endpoint.as_str()).arg("fence").arg(fence.0);
            }
            let others = [("owner", &note.owner), ("heir", &note.heir)];
            let others = others.map(|it| (it.0, it.1.as_ref().map_or("", InstanceId::as_str)));
            for (name, text) in others.into_iter().chain([("reason", note.reason)]) {
                if !text.is_empty() {
                    add.arg(name).arg(text);
                }
            }
            let age_ms = u64::try_from(note.age.as_millis()).unwrap_or(u64::MAX);
            if age_ms > 0 {
                add.arg("age_ms").arg(age_ms);
            }
        }
        self.call("write history on", timeout, |connection| {
            let packed = pipe.get_packed_pipeline();
            let answers = connection.req_packed_commands(&packed, 0, pipe.len())?;
            answers.into_iter().try_for_each(|it| it.extract_error().map(drop))
        })
        .map_err(|error| of_wrong_type(error, &key, "a stream"))
    }

    /// The last entries before `before`, or of all, the newest first; fewer than `count` when there are
    /// no more.
    pub fn history(
        &self,
        stream: Stream,
        before: Option<&str>,
        count: usize,
        timeout: Duration,
    ) -> StoreResult<Vec<Entry>> {
        let from = before.map_or("+".into(), |it| format!("({it}"));
        self.entries(stream, "XREVRANGE", [&from, "-"], count, timeout)
    }

    /// Everything that is remembered, the newest first.
    pub fn whole_history(&self, timeout: Duration) -> StoreResult<Vec<Entry>> {
        let mut found: Vec<Entry> = Vec::new();
        loop {
            let before = found.last().map(|it| it.id.clone());
            let page = self.history(Stream::Leases, before.as_deref(), PAGE, timeout)?;
            let is_last = page.len() < PAGE;
            found.extend(page);
            if is_last || found.len() >= 2 * KEPT {
                return Ok(found);
            }
        }
    }

    /// The first entries after `after`, the oldest first.
    pub fn history_after(
        &self,
        stream: Stream,
        after: &str,
        count: usize,
        timeout: Duration,
    ) -> StoreResult<Vec<Entry>> {
        self.entries(stream, "XRANGE", [&format!("({after}"), "+"], count, timeout)
    }

    fn entries(
        &self,
        stream: Stream,
        verb: &str,
        [from, to]: [&str; 2],
        count: usize,
        timeout: Duration,
    ) -> StoreResult<Vec<Entry>> {
        let op = "read history on";
        let keys = &self.server.keys;
        let key = match stream {
            Stream::Leases => keys.history(),
            Stream::Changes => keys.changes(),
        };
        let value: Value = self
            .call(op, timeout, |connection| {
                let mut range = redis::cmd(verb);
                range.arg(&key).arg(from).arg(to).arg("COUNT").arg(count);
                range.query(connection)
            })
            .map_err(|error| of_wrong_type(error, &key, "a stream"))?;
        let Value::Array(found) = value else { return Err(self.server.unexpected(op)) };
        let entry = |it| entry(it, keys.database()).ok_or_else(|| self.server.unexpected(op));
        found.iter().map(entry).collect()
    }
}

fn entry(value: &Value, database: u32) -> Option<Entry> {
    let Value::Array(parts) = value else { return None };
    let [id, fields] = &parts[..] else { return None };
    let id = text(id)?;
    let written_ms: u64 = id.split('-').next()?.parse().ok()?;
    let fields = match fields {
        Value::Array(fields) => &fields[..],
        _ => &[],
    };
    let raw = |name: &str| {
        let named =
            |it: &&[Value]| matches!(&it[0], Value::BulkString(it) if it == name.as_bytes());
        fields.chunks_exact(2).find(named).map(|it| &it[1])
    };
    if let Some(Value::BulkString(json)) = raw("change")
        && let Some(change) = announcement::decode_change(json, database)
    {
        return Some(Entry::of_change(id, written_ms, change));
    }
    let field = |name: &str| raw(name).and_then(text);
    let age_ms = field("age_ms").and_then(|it| it.parse().ok()).unwrap_or(0);
    Some(Entry {
        at_ms: written_ms.saturating_sub(age_ms),
        event: field("event").unwrap_or_default(),
        endpoint: field("endpoint").unwrap_or_default(),
        instance: field("instance").unwrap_or_default(),
        fence: field("fence").and_then(|it| it.parse().ok()).map(FenceToken),
        reason: field("reason"),
        owner: field("owner"),
        heir: field("heir"),
        id,
    })
}

fn text(value: &Value) -> Option<String> {
    let Value::BulkString(bytes) = value else { return None };
    Some(String::from_utf8_lossy(bytes).chars().take(TEXT_MAX_CHARS).collect())
}
