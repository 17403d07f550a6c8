//! `poll:history`: what became of leases and of instances, for people. A capped stream, written behind everything else.
//!
//! An entry's time is the server's when it was written, less its age then: no two clocks are compared.

use std::time::Duration;

use fnv::FnvHashMap;
use redis::{ConnectionLike, Value};

use crate::model::{FenceToken, InstanceId, Tenure};
use crate::store::StoreResult;
use crate::store::redis::RedisStore;
use crate::store::redis::scan::of_wrong_type;

/// About this many entries are kept.
const KEPT: usize = 10_000;
/// How many are read at a time.
const PAGE: usize = 1_000;
/// The longest text of an entry that is read. Nothing of ours is half as long.
const TEXT_MAX_CHARS: usize = 255;

/// Something that became of a lease, or of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// `acquired`, `released`, `lost` or `reclaimed`; of an instance, `started` or `stopped`.
    pub event: &'static str,
    /// Which grant; `None` of an instance.
    pub tenure: Option<Tenure>,
    /// Whose lease it was or is.
    pub instance: InstanceId,
    /// Why, in the words of the log; empty where there is no choice.
    pub reason: &'static str,
    /// Who has it instead, of a loss.
    pub owner: Option<InstanceId>,
    /// For whom it was given up.
    pub heir: Option<InstanceId>,
    /// How long ago it happened.
    pub age: Duration,
}

impl Note {
    /// Something that has just become of `instance`.
    pub fn of_instance(event: &'static str, instance: &InstanceId) -> Self {
        let (tenure, reason, owner, heir) = (None, "", None, None);
        Self { event, tenure, instance: instance.clone(), reason, owner, heir, age: Duration::ZERO }
    }
}

/// An entry as it was found. Anybody may have written it. One of an instance has no endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the stream.
    pub id: String,
    /// When it happened, by the server's clock.
    pub at_ms: u64,
    pub event: String,
    pub endpoint: String,
    pub instance: String,
    pub fence: Option<FenceToken>,
    pub reason: Option<String>,
    pub owner: Option<String>,
    pub heir: Option<String>,
}

impl Entry {
    /// Its id as numbers: within a millisecond entries are counted.
    fn place(&self) -> (u64, u64) {
        let (ms, n) = self.id.split_once('-').unwrap_or((&self.id, "0"));
        (ms.parse().unwrap_or(0), n.parse().unwrap_or(0))
    }

    /// Where it stands in the life of a grant.
    fn stage(&self) -> u8 {
        match self.event.as_str() {
            "acquired" => 0,
            "released" | "lost" => 2,
            _ => 1,
        }
    }
}

/// How far back they reach, if there were more: `None` when nothing has been forgotten.
pub fn reach(entries: &[Entry], server_ms: u64) -> Option<Duration> {
    let oldest = entries.iter().map(|it| it.place().0).min().filter(|_| entries.len() >= KEPT)?;
    Some(Duration::from_millis(server_ms.saturating_sub(oldest)))
}

/// In the order in which it happened: by time, within a millisecond by place, and for one endpoint by grant.
/// Times of different instances are only as exact as their connections are quick, but fences grow with
/// every grant.
pub fn in_order(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|it| (it.at_ms, it.place()));
    let mut places: FnvHashMap<String, Vec<usize>> = FnvHashMap::default();
    for (at, it) in entries.iter().enumerate().filter(|it| !it.1.endpoint.is_empty()) {
        places.entry(it.endpoint.clone()).or_default().push(at);
    }
    let mut ordered: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
    for places in places.into_values() {
        let mut life: Vec<Entry> = places.iter().filter_map(|it| ordered[*it].take()).collect();
        life.sort_by_key(|it| (it.fence, it.stage(), it.at_ms));
        places.iter().zip(life).for_each(|(at, it)| ordered[*at] = Some(it));
    }
    ordered.into_iter().flatten().collect()
}

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
        before: Option<&str>,
        count: usize,
        timeout: Duration,
    ) -> StoreResult<Vec<Entry>> {
        let from = before.map_or("+".into(), |it| format!("({it}"));
        self.entries("XREVRANGE", &from, "-", count, timeout)
    }

    /// Everything that is remembered, the newest first.
    pub fn whole_history(&self, timeout: Duration) -> StoreResult<Vec<Entry>> {
        let mut found: Vec<Entry> = Vec::new();
        loop {
            let before = found.last().map(|it| it.id.clone());
            let page = self.history(before.as_deref(), PAGE, timeout)?;
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
        after: &str,
        count: usize,
        timeout: Duration,
    ) -> StoreResult<Vec<Entry>> {
        self.entries("XRANGE", &format!("({after}"), "+", count, timeout)
    }

    fn entries(
        &self,
        verb: &str,
        from: &str,
        to: &str,
        count: usize,
        timeout: Duration,
    ) -> StoreResult<Vec<Entry>> {
        let op = "read history on";
        let value: Value = self
            .call(op, timeout, |connection| {
                let mut range = redis::cmd(verb);
                range.arg(self.server.keys.history()).arg(from).arg(to).arg("COUNT").arg(count);
                range.query(connection)
            })
            .map_err(|error| of_wrong_type(error, &self.server.keys.history(), "a stream"))?;
        let Value::Array(found) = value else { return Err(self.server.unexpected(op)) };
        found.iter().map(|it| entry(it).ok_or_else(|| self.server.unexpected(op))).collect()
    }
}

fn entry(value: &Value) -> Option<Entry> {
    let Value::Array(parts) = value else { return None };
    let [id, fields] = &parts[..] else { return None };
    let id = text(id)?;
    let written_ms: u64 = id.split('-').next()?.parse().ok()?;
    let fields = match fields {
        Value::Array(fields) => &fields[..],
        _ => &[],
    };
    let field = |name: &str| {
        let named =
            |it: &&[Value]| matches!(&it[0], Value::BulkString(it) if it == name.as_bytes());
        fields.chunks_exact(2).find(named).and_then(|it| text(&it[1]))
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The owner notes its release when it was answered; by then the heir may have noted its grant.
    #[test]
    fn a_release_comes_before_the_grant_that_follows_it_whatever_the_clocks_say() {
        let entry = |at_ms: u64, endpoint: &str, event: &str, fence: u64| Entry {
            id: format!("{at_ms}-0"),
            at_ms,
            event: event.into(),
            endpoint: endpoint.into(),
            instance: "a".into(),
            fence: Some(FenceToken(fence)),
            reason: None,
            owner: None,
            heir: None,
        };
        let found = vec![
            entry(7, "e", "released", 1),
            entry(6, "f", "acquired", 1),
            entry(5, "e", "acquired", 2),
            entry(3, "e", "reclaimed", 1),
            entry(3, "e", "acquired", 1),
        ];
        let told: Vec<String> = in_order(found)
            .iter()
            .map(|it| format!("{} {} {:?}", it.endpoint, it.event, it.fence.unwrap().0))
            .collect();
        let wanted =
            ["e acquired 1", "e reclaimed 1", "e released 1", "f acquired 1", "e acquired 2"];
        assert_eq!(told, wanted);
    }

    /// Whichever way they were read, and however many happened in one millisecond.
    #[test]
    fn within_a_millisecond_they_are_in_the_order_of_the_stream() {
        let entry = |n: u64| Entry {
            id: format!("5-{n}"),
            at_ms: 5,
            event: "acquired".into(),
            endpoint: format!("e{}", 7 * n % 13),
            instance: "a".into(),
            fence: Some(FenceToken(1)),
            reason: None,
            owner: None,
            heir: None,
        };
        let wanted: Vec<Entry> = (0..12).map(entry).collect();
        assert_eq!(in_order((0..12).rev().map(entry).collect()), wanted);
        assert_eq!(in_order(wanted.clone()), wanted);
        assert_eq!(reach(&wanted, 100), None, "nothing was forgotten");
    }
}
