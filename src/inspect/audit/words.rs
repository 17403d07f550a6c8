//! How is a finding told, to people and to programs?

use std::time::Duration;

use serde_json::{Value, json};

use crate::inspect::audit::{Counts, Finding, Kind, Party, START_TOLERANCE, Source};
use crate::inspect::status::{brief, counted};
use crate::inspect::utc;

/// One line: when, what, and what to do.
pub(crate) fn line(it: &Finding) -> String {
    format!("{} {} {}", utc::date_and_time(it.at_ms), it.kind.word(), sentence(it))
}

/// What happened, and what to do.
pub(crate) fn sentence(it: &Finding) -> String {
    let endpoint = &it.endpoint;
    let (earlier, later) = (party(it.earlier.as_ref()), party(it.later.as_ref()));
    let for_ = brief(Duration::from_millis(it.for_ms));
    let history = format!("leasehold history {endpoint}");
    match it.kind {
        Kind::Overlap => format!(
            "{endpoint} was polled by two owners at a time for {for_}: by {earlier}, and by {later}; \
             compare {history} with the logs of both instances"
        ),
        Kind::Superseded => format!(
            "{endpoint} was polled by {later}, {for_} after the higher fence of {earlier} was \
             granted; compare {history} with the logs of both instances, and ask whether the clock \
             of Redis was stepped"
        ),
        Kind::FenceBack if is_of_one(it) => format!(
            "the fence of {endpoint} went back: {later} came after {earlier}; the instance went on \
             under a grant that it had given up: compare {history} with its log"
        ),
        Kind::FenceBack => format!(
            "the fence of {endpoint} went back: {later} came after {earlier}; an instance without \
             the lease stored a result, or another program wrote one: compare {history} with the \
             logs of both instances"
        ),
        Kind::StartBack => format!(
            "a result of {endpoint} is older than the one before it: {later} came after {earlier}; \
             no version of Leasehold stores such a result: find the program that wrote it"
        ),
        Kind::SharedFence => format!(
            "two instances have one fence of {endpoint}: {earlier}, and {later}; Redis gives each \
             grant a fence of its own: find the program that wrote one of them"
        ),
        Kind::Unpolled => match &it.earlier {
            Some(owner) => format!(
                "{endpoint} was not polled for {for_} longer than its interval, although \
                 {} owns it: ask leasehold explain {endpoint}",
                owner.holder.instance.as_str()
            ),
            None => format!(
                "{endpoint} had no owner for {for_}, longer than a lease lasts: ask leasehold \
                 explain {endpoint}"
            ),
        },
    }
}

fn is_of_one(it: &Finding) -> bool {
    let instance = |it: &Option<Party>| it.as_ref().map(|it| it.holder.instance.clone());
    instance(&it.earlier) == instance(&it.later)
}

fn party(it: Option<&Party>) -> String {
    let Some(Party { holder, poll }) = it else { return "an unknown instance".into() };
    let poll = poll.map_or(String::new(), |(started_at_ms, duration_ms)| {
        let at = utc::date_and_time(started_at_ms);
        format!(", a poll of {} from {at}", brief(Duration::from_millis(duration_ms)))
    });
    format!("{} (fence {}{poll})", holder.instance.as_str(), holder.fence)
}

/// A finding for programs.
pub(crate) fn document(it: &Finding) -> Value {
    json!({
        "type": "finding",
        "kind": it.kind.word(),
        "endpoint": it.endpoint.as_str(),
        "atMs": it.at_ms,
        "forMs": it.for_ms,
        "earlier": it.earlier.as_ref().map(party_document),
        "later": it.later.as_ref().map(party_document),
        "sentence": sentence(it),
    })
}

fn party_document(it: &Party) -> Value {
    json!({
        "instance": it.holder.instance.as_str(),
        "fence": it.holder.fence.0,
        "startedAtMs": it.poll.map(|it| it.0),
        "durationMs": it.poll.map(|it| it.1),
    })
}

/// The last line: how much was observed, what was found, and what could not be observed.
pub(crate) fn summary(counts: &Counts, n_endpoints: usize) -> String {
    let found: Vec<String> = Kind::ALL
        .into_iter()
        .filter(|it| counts.findings[*it as usize] > 0)
        .map(|it| format!("{} {}", counts.findings[it as usize], it.word()))
        .collect();
    let found = match found.is_empty() {
        true => "no finding".into(),
        false => format!("{}: {}", many(counts.n_findings(), "finding"), found.join(", ")),
    };
    let mut told = format!(
        "audited {}, {}, {} and {} at {}: {found}",
        many(counts.results, "result"),
        many(counts.changes, "change"),
        many(counts.lease_events, "lease event"),
        many(counts.looks, "look"),
        counted(n_endpoints, "endpoint"),
    );
    told += &unobserved(counts);
    if counts.foreign > 0 {
        told += &format!(
            "; {} that no instance writes were left out",
            many(counts.foreign, "message or entry").replace("entrys", "entries")
        );
    }
    if counts.forgotten > 0 {
        told += &format!("; {} were forgotten: there are too many", counts.forgotten);
    }
    told
}

/// What could not be observed; empty if everything was.
pub(crate) fn unobserved(counts: &Counts) -> String {
    let missed = Source::ALL.into_iter().filter_map(|source| {
        let ms = counts.unobserved_ms[source as usize];
        let what = match source {
            Source::Results => "results",
            Source::Changes => "changes",
            Source::Leases => "lease events",
            Source::Looks => "sessions and owners",
        };
        (ms > 0).then(|| format!("{what} not observed for {}", brief(Duration::from_millis(ms))))
    });
    missed.map(|it| format!("; {it}")).collect()
}

fn many(n: u64, what: &str) -> String {
    counted(usize::try_from(n).unwrap_or(usize::MAX), what)
}

/// The summary for programs.
pub(crate) fn summary_document(counts: &Counts, n_endpoints: usize) -> Value {
    let findings: serde_json::Map<String, Value> = Kind::ALL
        .into_iter()
        .map(|it| (it.word().to_owned(), counts.findings[it as usize].into()))
        .collect();
    let unobserved: serde_json::Map<String, Value> = Source::ALL
        .into_iter()
        .map(|it| (it.word().to_owned(), counts.unobserved_ms[it as usize].into()))
        .collect();
    json!({
        "type": "summary",
        "results": counts.results,
        "changes": counts.changes,
        "leaseEvents": counts.lease_events,
        "looks": counts.looks,
        "endpoints": n_endpoints,
        "findings": findings,
        "unobservedMs": unobserved,
        "foreign": counts.foreign,
        "forgotten": counts.forgotten,
        "toleranceMs": u64::try_from(START_TOLERANCE.as_millis()).unwrap_or(u64::MAX),
    })
}
