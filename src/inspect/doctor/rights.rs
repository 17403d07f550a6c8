//! Has the user the rights that it needs for its purpose?

use crate::inspect::doctor::Finding;
use crate::store::admin::acl::{Missing, Need, Purpose, Rights};

/// What is missing, what does not work without it, and the way out.
pub fn judged(rights: &Rights, purpose: Purpose) -> Finding {
    let check = "rights";
    let n = rights.n_checked;
    let how = match rights.by_dry_run {
        true => "by asking what the server would say",
        false => "by trying, on a key of its own that expires",
    };
    if rights.missing.is_empty() {
        return Finding::ok(check, format!("all that is needed: {n} checked {how}"));
    }
    // Which command, a right for one says itself.
    let named = |it: &Missing| match it.right.starts_with('+') {
        true if it.is_unknown => format!("{} (unknown there)", it.right),
        true => it.right.clone(),
        false => format!("{} (denied: {})", it.right, it.shown_by),
    };
    let all_of = |need: Need| {
        let these = rights.missing.iter().filter(|it| it.need == need);
        these.map(named).collect::<Vec<_>>().join(", ")
    };
    let not_without = match purpose {
        Purpose::Daemon => "run does not work without".into(),
        other => format!("of {} something does not work without", other.commands()),
    };
    let mut found = Vec::new();
    for (need, what) in [
        (Need::Run, not_without.as_str()),
        (Need::Roles, "lead, once and run --lead do not work without"),
        (Need::Messages, "hand-overs take seconds, and results are not announced, without"),
        (Need::Pushes, "changes are noticed later without"),
        (Need::Failover, "killed instances are replaced seconds later without"),
        (Need::RoundTrips, "every call takes a second round, and the whole script, without"),
        (Need::ServerLoad, "leases cost the server more without"),
        (Need::History, "history and the stream of changes have nothing to show without"),
        (Need::Reading, "status, top and history do not work with this user without"),
    ] {
        let names = all_of(need);
        if !names.is_empty() {
            found.push(format!("{what} {names}"));
        }
    }
    if rights.only_looks() && purpose == Purpose::Daemon {
        return Finding::fail(
            check,
            "this user may only look (status, top, explain, plan, watch, history): run does not work",
            "nothing, if it is meant for people who look (ask with --purpose onlooker); the daemon needs a \
             user of its own, see below",
        );
    }
    let found = found.join("; ");
    let needed = rights.missing.iter().any(|it| it.need == Need::Run);
    let way_out = match rights.missing.iter().all(|it| it.is_unknown) {
        true => {
            "no rule can give what a server does not know: look at its rename-command, or live with it"
        }
        false => "paste the rule below",
    };
    if needed { Finding::fail(check, found, way_out) } else { Finding::warn(check, found, way_out) }
}
