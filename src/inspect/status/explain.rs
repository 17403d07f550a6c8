//! Why is an endpoint where it is, is it polled, and what would have to happen for it to move? In sentences.

use crate::inspect::printable::printable;
use crate::inspect::status::late::Cause;
use crate::inspect::status::{EndpointStatus, InstanceStatus, State, Status, brief, counted};
use crate::model::InstanceId;

/// Where it is, why, and what would have to happen for it to move; a sentence each.
pub(crate) fn reasons(status: &Status, it: &EndpointStatus) -> Vec<String> {
    let mut said = vec![where_it_is(it)];
    said.extend(why_not_in_time(status, it));
    if let Some(left) = status.hold_off {
        let left = brief(left);
        said.push(format!(
            "Redis is holding off for {left}: nothing is granted or moved until then."
        ));
    }
    said.extend(what_comes(status, it));
    said.extend(it.about_certificate());
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
pub(crate) fn is_weightless(it: &InstanceStatus) -> bool {
    it.heartbeat.as_ref().is_some_and(|it| it.value.0 == 0)
}
