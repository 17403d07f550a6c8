//! `leasehold explain`: why is an endpoint where it is, is it polled, and what would have to happen for it
//! to move? In sentences.

use std::process::ExitCode;
use std::time::Duration;

use crate::config::Config;
use crate::fleet::session_cache::understood_with_odd_fields;
use crate::inspect::status::late::Cause;
use crate::inspect::status::plan::ranking;
use crate::inspect::status::{EndpointStatus, InstanceStatus, State, Status, counted};
use crate::model::{EndpointId, InstanceId};
use crate::store::admin::overview::Overview;
use serde_json::{Value, json};

use crate::cli::plan::overview;
use crate::cli::status::heartbeat;
use crate::cli::table::{Cell, Painter, Side, Table, brief, printable};
use crate::cli::task::STALE_AFTER;
use crate::cli::usage::nearest;
use crate::cli::{FAILED, fail, say};

/// Why an endpoint is where it is.
pub(crate) fn explain(config: &Config, endpoint: &EndpointId, as_json: bool) -> ExitCode {
    let explained = overview(config).and_then(|overview| {
        let order = ranking(&overview, endpoint);
        let odd_fields = odd_fields(&overview, endpoint);
        let status = Status::of(overview, STALE_AFTER);
        let odd = odd_keys(config, &status, endpoint);
        let found = status.endpoints.iter().find(|it| it.name == endpoint.as_str());
        let found = found.ok_or_else(|| match odd.is_empty() {
            true => unknown(&status, endpoint),
            false => format!("there is no session {endpoint}, but {}", odd.join(" ")),
        })?;
        let mut sentences = reasons(&status, found);
        sentences.extend(odd_fields);
        sentences.extend(odd);
        sentences.extend(
            status.wrong_types.iter().map(|it| format!("{}; {}.", it.sentence(), it.way_out())),
        );
        Ok(match as_json {
            true => format!("{:#}\n", document(found, &order, &sentences)),
            false => page(&status, found, &order, &sentences),
        })
    });
    match explained {
        Ok(text) => say(&text),
        Err(why) => fail(FAILED, &why),
    }
}

/// That there is no such endpoint, and which was probably meant.
pub(crate) fn unknown(status: &Status, endpoint: &EndpointId) -> String {
    let names = status.endpoints.iter().map(|it| it.name.as_str());
    let way_out = match nearest(endpoint.as_str(), names) {
        Some(near) => format!("did you mean {}?", printable(near)),
        None => "see leasehold status --all".into(),
    };
    format!("there is neither a session nor a lease {endpoint}: {way_out}")
}

/// The fields of its session that were probably meant to be others; a sentence each.
fn odd_fields(overview: &Overview, endpoint: &EndpointId) -> Vec<String> {
    let stored = overview.endpoints.iter().find(|it| it.id == *endpoint);
    let session = stored.and_then(|it| it.session.as_ref());
    let read = session.and_then(|raw| understood_with_odd_fields(endpoint, raw).ok());
    let odd = read.map(|it| it.1).unwrap_or_default();
    odd.iter().map(|it| printable(&format!("In its session {it}"))).collect()
}

/// What is wrong with the keys of this endpoint, with the way out; a sentence each. A session that is no
/// string is told of as one that cannot be understood.
fn odd_keys(config: &Config, status: &Status, endpoint: &EndpointId) -> Vec<String> {
    let p = &config.prefix;
    let (lease, result) = (format!("{p}:lease:{endpoint}"), format!("{p}:result:{endpoint}"));
    let told = |(key, why): &(String, &'static str)| {
        let means = match key {
            _ if *key == lease => "it can be granted to nobody",
            _ if *key == result && *why == "is not a hash" => {
                "it can be granted to nobody, and no result stored"
            }
            _ if *key == result => "somebody else wrote into it; the next result mends it",
            _ => return None,
        };
        let key = printable(key);
        Some(format!("{key} {why}: {means}; redis-cli DEL {key}, nobody loses a right by that."))
    };
    status.odd_keys.iter().filter_map(told).collect()
}

/// Where it is, why, and what would have to happen for it to move; a sentence each.
fn reasons(status: &Status, it: &EndpointStatus) -> Vec<String> {
    let mut said = vec![where_it_is(it)];
    said.extend(why_not_in_time(status, it));
    if let Some(left) = status.hold_off {
        let left = brief(left);
        said.push(format!(
            "Redis is holding off for {left}: nothing is granted or moved until then."
        ));
    }
    said.extend(what_comes(status, it));
    said
}

/// Why it is polled late. Its owner knows best, unless it cannot tell or the reason is the endpoint's own.
fn why_not_in_time(status: &Status, it: &EndpointStatus) -> Option<String> {
    let cause = status.why_late(it);
    let owners = status.owners_reason(it).map(|it| printable(&it));
    match cause {
        Some(Cause::Crowded { .. } | Cause::Alone) if owners.is_some() => {
            Some(format!("The likely reason: {}.", owners?))
        }
        Some(Cause::Slow(_)) => {
            let also = owners.map_or(String::new(), |it| format!(" {it}."));
            Some(cause.map(|cause| why_late(it, cause))? + &also)
        }
        Some(cause) => Some(why_late(it, cause)),
        None => owners.map(|it| format!("{it}.")),
    }
}

fn named(id: &InstanceId) -> String {
    printable(id.as_str())
}

fn where_it_is(it: &EndpointStatus) -> String {
    let endpoint = printable(&it.name);
    if let Some(error) = it.invalid() {
        return format!("Nobody polls {endpoint}: {error}.");
    }
    let standing = match it.state {
        State::Unowned | State::Invalid => "",
        State::Abandoned => ", but has no heartbeat",
        State::Stale | State::Late => &format!(", but polls it late: {}", it.timings()),
        State::Failing => ", and polls it; the last poll failed",
        State::Uncertain => ", but should have renewed it long ago and may not poll at the moment",
        State::Moving => ", for now",
        State::New => ", and has not polled it yet",
        State::NoSession => ", but there is no session for it",
        State::Paused => ", and it is paused",
        State::Ok => ", and polls it",
    };
    match &it.lease {
        Some(lease) => format!("{} owns {endpoint}{standing}.", named(&lease.value)),
        None if it.state == State::Paused => format!("Nobody owns {endpoint}, and it is paused."),
        None => format!("Nobody owns {endpoint}."),
    }
}

fn why_late(it: &EndpointStatus, cause: Cause) -> String {
    let owner = it.lease.as_ref().map_or("its owner".into(), |it| named(&it.value));
    match cause {
        Cause::Uncertain => format!(
            "The likely reason: {owner} does not reach Redis, or stands still; it may not poll before it \
             has renewed the lease."
        ),
        Cause::Slow(took) => format!(
            "The likely reason: the endpoint is slow. Its last poll took {}, longer than its interval.",
            brief(took)
        ),
        Cause::Crowded { late, busy } => format!(
            "The likely reason: {owner} has too few workers. {late} of its endpoints are late, and what \
             it owns would keep about {busy:.1} at a time busy; raise LEASEHOLD_WORKERS there and reload, \
             or add an instance."
        ),
        Cause::Alone => format!(
            "Why is not to be seen from here, no other endpoint of {owner} is late: a poll may still be \
             running; look at its log for {}.",
            printable(&it.name)
        ),
    }
}

/// What becomes of it if nothing else happens, and what would have to happen.
fn what_comes(status: &Status, it: &EndpointStatus) -> Vec<String> {
    let lease = it.lease.as_ref().map(|it| &it.value);
    let (owner, heir) = (lease.map(named), it.preferred.as_ref().map(named));
    let instance = lease.and_then(|id| status.instances.iter().find(|it| it.id == *id));
    let sentence = match (it.state, owner, heir) {
        (State::Paused | State::Invalid | State::NoSession, Some(_), _) => {
            "Its owner gives it back as soon as it looks.".into()
        }
        (State::Paused, None, _) => "It is polled again when its session says so.".into(),
        (State::Invalid | State::NoSession, None, _) => return vec![],
        (_, Some(owner), _) if !it.owner_lives => {
            format!("{owner} has no heartbeat: the lease is taken over now, or ends by itself.")
        }
        (_, Some(owner), Some(heir)) if owner == heir => {
            return vec![
                format!("It stays there: {owner} lives and {}.", within_share(instance)),
                "It would move if its owner stops, dies or is drained, or if somebody joins who is \
                 below its share and comes before its owner in the order of preference."
                    .into(),
            ];
        }
        (_, Some(owner), Some(heir)) => format!(
            "{heir} should have it, because {owner} {}; {heir} asks for it, and it moves when the \
             running poll has ended.",
            beyond_share(instance)
        ),
        (_, Some(_), None) => {
            "It stays there: every instance has weight 0, so nobody may take it.".into()
        }
        (_, None, Some(heir)) => format!("{heir} takes it next."),
        (_, None, None) if status.n_live() == 0 => {
            "No live instance may take it: none is running.".into()
        }
        (_, None, None) => "No live instance may take it: every one has weight 0.".into(),
    };
    vec![sentence]
}

fn within_share(owner: Option<&InstanceStatus>) -> String {
    let counts =
        owner.map(|it| format!(": it owns {}, and its share is {:.1}", it.owned, it.fair_share));
    format!("this is within its share{}", counts.unwrap_or_default())
}

fn beyond_share(owner: Option<&InstanceStatus>) -> String {
    match owner {
        Some(it) if it.drained => "is drained".into(),
        Some(it) if is_weightless(it) => "has weight 0".into(),
        Some(it) => format!(
            "owns {}, more than its share of {:.1}",
            counted(it.owned, "endpoint"),
            it.fair_share
        ),
        None => "owns more than its share".into(),
    }
}

/// It is given nothing.
fn is_weightless(it: &InstanceStatus) -> bool {
    it.heartbeat.as_ref().is_some_and(|it| it.value.0 == 0)
}

fn page(
    status: &Status,
    it: &EndpointStatus,
    order: &[InstanceId],
    sentences: &[String],
) -> String {
    let mut out = sentences.join("\n") + "\n";
    let mut table = Table::new(&[
        ("PREFERENCE", Side::Right),
        ("INSTANCE", Side::Left),
        ("WEIGHT", Side::Right),
        ("OWNED", Side::Right),
        ("SHARE", Side::Right),
        ("HEARTBEAT", Side::Left),
    ]);
    let find = |id: &InstanceId| status.instances.iter().find(|it| it.id == *id);
    let (none, some): (Vec<_>, Vec<_>) =
        order.iter().filter_map(find).partition(|it| is_weightless(it));
    let ranked = some.iter().enumerate().map(|(n, it)| ((n + 1).to_string(), it));
    // An instance of weight 0 is in no order of preference.
    for (rank, it) in ranked.chain(none.iter().map(|it| ("-".into(), it))) {
        let weight = it.heartbeat.as_ref().map_or("-".into(), |it| it.value.to_string());
        let share = format!("{:.1}", it.fair_share);
        let cells = [rank, it.id.to_string(), weight, it.owned.to_string(), share];
        table.row(cells.iter().map(|it| Cell::new(it)).chain([heartbeat(it)]).collect());
    }
    if !order.is_empty() {
        out += &format!("\n{}", table.shown(Painter::for_stdout()));
    }
    match (it.fence, &it.lease) {
        (Some(fence), Some(lease)) if lease.left == Duration::MAX => {
            out + &format!("\nFence {fence}; the lease never ends.\n")
        }
        (Some(fence), Some(lease)) => {
            out + &format!("\nFence {fence}, {} left of the lease.\n", brief(lease.left))
        }
        (Some(fence), None) => out + &format!("\nThe last fence was {fence}.\n"),
        (None, _) => out,
    }
}

fn document(it: &EndpointStatus, order: &[InstanceId], sentences: &[String]) -> Value {
    let ms = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
    let lease = it.lease.as_ref();
    json!({
        "endpoint": it.name,
        "state": it.state.word(),
        "owner": lease.map(|it| it.value.as_str()),
        "leftMs": lease.map(|it| ms(it.left)),
        "fence": it.fence.map(|it| it.0),
        "preferred": it.preferred.as_ref().map(InstanceId::as_str),
        "preference": order.iter().map(InstanceId::as_str).collect::<Vec<_>>(),
        "late": it.overdue.is_some(),
        "intervalMs": it.interval.map(ms),
        "overdueMs": it.overdue.map(ms),
        "why": sentences,
    })
}
