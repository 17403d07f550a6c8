//! How is an observation written down, and read again? One JSON document a line, without bodies, addresses and errors.
//!
//! Results, changes and lease events have the names that `leasehold watch --json` gives them, so its output can be judged, too.

use serde_json::{Map, Value, json};

use crate::inspect::audit::{Holder, Look, Observation, Poll, Read, Source, Unattended, holder};
use crate::model::{EndpointId, FenceToken};
use crate::store::admin::overview::EpochRecord;

/// A longer line was not written by this module.
pub(crate) const LINE_MAX_BYTES: usize = 16 * 1024;
/// The longest word that is kept of a line.
const WORD_MAX_CHARS: usize = 32;

/// The line, without its end.
pub(crate) fn encode(it: &Observation) -> String {
    let document = match it {
        Observation::Result { endpoint, poll, read } => {
            let kind = match read {
                Read::Announced => "result",
                Read::Stored => "stored",
            };
            let (started, duration) = (poll.started_at_ms, poll.duration_ms);
            let mut line = named(kind, endpoint, &poll.holder);
            line["startedAtMs"] = started.into();
            line["durationMs"] = duration.into();
            line
        }
        Observation::Change { endpoint, holder, at_ms } => {
            let mut line = named("change", endpoint, holder);
            line["atMs"] = (*at_ms).into();
            line
        }
        Observation::Lease { endpoint, holder, at_ms, event } => {
            let mut line = named("lease", endpoint, holder);
            line["atMs"] = (*at_ms).into();
            line["event"] = event.as_str().into();
            line
        }
        Observation::Unattended(it) => json!({
            "type": "unattended",
            "endpoint": it.endpoint.as_str(),
            "state": it.state,
            "fence": it.owner.as_ref().map(|it| it.fence.0),
            "instance": it.owner.as_ref().map(|it| it.instance.as_str()),
            "polledAtMs": it.polled_at_ms,
            "granted": it.granted.map(|it| it.0),
            "sinceMs": it.since_ms,
        }),
        Observation::Look(Look { server_ms, epoch, wanted }) => json!({
            "type": "look",
            "serverTimeMs": server_ms,
            "endpoints": wanted,
            "epoch": epoch.map(|it| it.epoch),
            "sinceMs": epoch.map(|it| it.since_ms),
            "leaseTtlMs": epoch.map(|it| it.lease_ttl_ms),
            "marginMs": epoch.map(|it| it.margin_ms),
        }),
        Observation::Unobserved { source, for_ms } => {
            json!({"type": "unobserved", "source": source.word(), "forMs": for_ms})
        }
        Observation::Foreign => json!({"type": "foreign"}),
    };
    document.to_string()
}

fn named(kind: &str, endpoint: &EndpointId, holder: &Holder) -> Value {
    json!({
        "type": kind,
        "endpoint": endpoint.as_str(),
        "fence": holder.fence.0,
        "instance": holder.instance.as_str(),
    })
}

/// What a line tells: any file may be given. `None` for a line that is about no lease, such as the start of an instance.
pub(crate) fn decode(line: &[u8]) -> Option<Observation> {
    if line.len() > LINE_MAX_BYTES {
        return Some(Observation::Foreign);
    }
    let Ok(Value::Object(fields)) = serde_json::from_slice(line) else {
        return Some(Observation::Foreign);
    };
    let is_of_instance = fields.get("event").is_some_and(|it| it == "started" || it == "stopped");
    if text(&fields, "type") == Some("lease") && is_of_instance {
        return None;
    }
    Some(understood(&fields).unwrap_or(Observation::Foreign))
}

fn understood(fields: &Map<String, Value>) -> Option<Observation> {
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let endpoint = || EndpointId::parse(text(fields, "endpoint")?).ok();
    let owner = || holder(number("fence"), text(fields, "instance"));
    Some(match text(fields, "type")? {
        kind @ ("result" | "stored") => Observation::Result {
            endpoint: endpoint()?,
            poll: Poll {
                holder: owner()?,
                started_at_ms: number("startedAtMs")?,
                duration_ms: number("durationMs").unwrap_or_default(),
            },
            read: if kind == "result" { Read::Announced } else { Read::Stored },
        },
        "change" => {
            Observation::Change { endpoint: endpoint()?, holder: owner()?, at_ms: number("atMs")? }
        }
        "lease" => Observation::Lease {
            endpoint: endpoint()?,
            holder: owner()?,
            at_ms: number("atMs")?,
            event: word(fields, "event")?,
        },
        "unattended" => Observation::Unattended(Unattended {
            endpoint: endpoint()?,
            state: word(fields, "state")?,
            owner: owner(),
            polled_at_ms: number("polledAtMs"),
            granted: number("granted").map(FenceToken),
            since_ms: number("sinceMs"),
        }),
        "look" => Observation::Look(Look {
            server_ms: number("serverTimeMs")?,
            epoch: number("epoch").and_then(|epoch| {
                Some(EpochRecord {
                    epoch,
                    since_ms: number("sinceMs")?,
                    lease_ttl_ms: number("leaseTtlMs")?,
                    margin_ms: number("marginMs")?,
                })
            }),
            wanted: number("endpoints").and_then(|it| usize::try_from(it).ok())?,
        }),
        "unobserved" => {
            let named = text(fields, "source")?;
            let source = Source::ALL.into_iter().find(|it| it.word() == named)?;
            Observation::Unobserved { source, for_ms: number("forMs")? }
        }
        _ => return None,
    })
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(Value::as_str)
}

fn word(fields: &Map<String, Value>, name: &str) -> Option<String> {
    Some(text(fields, name)?.chars().take(WORD_MAX_CHARS).collect())
}
