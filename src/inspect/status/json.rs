//! What do programs read of a fleet's status? One document; an unknown value is null.
//!
//! Keys may be added, and are never renamed: other people's scripts rely on them.

use std::time::Duration;

use crate::config::RedisUrl;
use crate::inspect::status::left::{Lately, Left};
use crate::inspect::status::{Alarm, EndpointStatus, InstanceStatus, State, Status};
use crate::model::{EndpointId, InstanceId, Verdict};
use crate::store::RoleStatus;
use crate::store::admin::overview::LastResult;
use serde_json::{Map, Value, json};

/// Every role that was ever led, and how it stands.
pub(crate) type Leaders = Vec<(EndpointId, RoleStatus)>;

/// Everything, as one JSON document.
pub(crate) fn document(
    redis: &RedisUrl,
    status: &Status,
    shown: &[&EndpointStatus],
    led: &Leaders,
    lately: Option<&Lately>,
) -> String {
    let counts = State::ALL.iter().map(|it| (camel(it.word()), json!(status.count(*it))));
    let mut counts: Map<String, Value> = counts.collect();
    counts.insert("instances".into(), json!(status.n_live()));
    counts.insert("sessions".into(), json!(status.n_sessions()));
    counts.insert("toPoll".into(), json!(status.n_wanted()));
    counts.insert("toMove".into(), json!(status.n_to_move()));
    let unowned = status.endpoints.iter().filter(|it| it.state == State::Unowned);
    let odd = status.odd_keys.iter().map(|(key, why)| json!({"key": key, "why": why}));
    let left = lately.map(|it| it.left.iter().map(left_document).collect::<Vec<_>>());
    let document = json!({
        "redis": redis.to_string(),
        "left": left,
        "historyReachMs": lately.and_then(|it| it.reach).map(millis),
        "verdict": status.verdict(),
        "healthy": status.alarm() == Alarm::None,
        "serverTimeMs": status.server_ms,
        "holdOffMs": status.hold_off.map(millis),
        "counts": counts,
        "drained": status.drained,
        "instances": status.instances.iter().map(instance_document).collect::<Vec<_>>(),
        "leaders": led.iter().map(leader_document).collect::<Vec<_>>(),
        "endpoints": shown.iter().map(|it| endpoint_document(it)).collect::<Vec<_>>(),
        "unowned": unowned.map(|it| it.name.as_str()).collect::<Vec<_>>(),
        "late": status.late().iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
        "certExpiring": status.expiring().iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
        "oddKeys": odd.collect::<Vec<_>>(),
    });
    without_controls(&format!("{document:#}\n"))
}

fn instance_document(instance: &InstanceStatus) -> Value {
    let (heartbeat, info) = (instance.heartbeat.as_ref(), instance.info.as_ref());
    let polling = instance.polling();
    let behind = polling.and_then(|it| it.behind.as_ref());
    json!({
        "id": instance.id.as_str(),
        "alive": heartbeat.is_some(),
        "weight": heartbeat.map(|it| it.value.0),
        "heartbeatLeftMs": heartbeat.map(|it| millis(it.left)),
        "owned": instance.owned,
        "fairShare": instance.fair_share,
        "drained": instance.drained,
        "revoked": instance.revoked,
        "version": info.map(|it| it.version.as_str()),
        "protocol": info.map(|it| it.protocol),
        "startedAtMs": info.and_then(|it| it.started_at_ms),
        "keepsUp": polling.map(|_| instance.shortfall().is_none()),
        "workers": polling.map(|it| it.workers),
        "busy": polling.map(|it| it.busy),
        "threads": polling.map(|it| it.threads),
        "slow": polling.map(|it| it.slow),
        "pollsPerMin": polling.map(|it| it.polls_per_min),
        "skippedPerMin": polling.map(|it| it.skipped_per_min),
        "deferredPerMin": polling.map(|it| it.deferred_per_min),
        "lagMs": polling.map(|it| millis(it.lag)),
        "behind": polling.map(|_| behind.map_or(0, |it| it.endpoints)),
        "slowBehind": polling.map(|it| it.slow_behind),
        "periodMs": behind.map(|it| millis(it.period)),
        "intervalMs": behind.map(|it| millis(it.interval)),
    })
}

pub(crate) fn endpoint_document(endpoint: &EndpointStatus) -> Value {
    let lease = endpoint.lease.as_ref();
    let id = |it: &InstanceId| it.as_str().to_owned();
    let last = endpoint.result.as_ref();
    let result = last.map(|it| {
        json!({
            "ok": it.ok,
            "status": it.status,
            "error": it.error,
            "startedAtMs": it.started_at_ms,
            "durationMs": it.duration_ms,
            "fence": it.fence.map(|it| it.0),
            "instance": it.instance.as_ref().map(id),
            "ageMs": endpoint.age.map(millis),
            "intervalMs": it.interval_ms,
            "certDays": it.certificate.map(|it| it.days),
            "certExpiring": it.certificate.map(|it| it.is_short),
        })
    });
    json!({
        "id": endpoint.name,
        "state": camel(endpoint.state.word()),
        "error": endpoint.invalid().map(ToString::to_string),
        "owner": lease.map(|it| id(&it.value)),
        "ownerAlive": endpoint.owner_lives,
        "preferredOwner": endpoint.preferred.as_ref().map(id),
        "fence": endpoint.fence.map(|it| it.0),
        "leaseLeftMs": lease.map(|it| millis(it.left)),
        "intervalMs": endpoint.interval.map(millis),
        "late": endpoint.overdue.is_some(),
        "overdueMs": endpoint.overdue.map(millis),
        "address": endpoint.address().map(ToString::to_string),
        "verdict": last.and_then(LastResult::verdict).map(Verdict::as_str),
        "sinceMs": last.and_then(LastResult::verdict_since_ms),
        "failures": last.and_then(|it| it.state).map(|it| it.failures),
        "lastResult": result,
    })
}

/// One role, for programs.
pub(crate) fn leader_document((role, status): &(EndpointId, RoleStatus)) -> Value {
    let ms = |it: Option<Duration>| it.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
    let leader = status.leader.as_ref();
    json!({
        "role": role.as_str(),
        "leader": leader.map(|it| it.value.as_str()),
        "term": status.term.0,
        "ledForMs": leader.and(ms(status.led_for)),
        "leftMs": ms(leader.map(|it| it.left)),
        "heartbeatAgeMs": ms(status.heartbeat_age),
        "ttlMs": ms(status.ttl),
        "stale": status.is_stale,
    })
}

fn left_document(it: &Left) -> Value {
    let how = if it.stopped { "stopped" } else { "died" };
    json!({"id": it.id.as_str(), "how": how, "agoMs": millis(it.ago)})
}

/// `noSession` for `no session`.
pub(crate) fn camel(words: &str) -> String {
    words.replace(" s", "S")
}

/// Null for what has no end.
pub(crate) fn millis(time: Duration) -> Option<u64> {
    u64::try_from(time.as_millis()).ok()
}

/// JSON lets some through that mean something to a terminal. They occur only inside strings.
pub(crate) fn without_controls(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for c in document.chars() {
        match c {
            '\n' => out.push(c),
            _ if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out
}
