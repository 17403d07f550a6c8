//! Can this instance join the fleet that runs here: have the shared keys the right types, and do the timings agree?

use std::time::Duration;

use crate::config::Config;
use crate::inspect::doctor::Finding;
use crate::model::LeaseDuration;
use crate::store::admin::key_types::{SingletonKey, WrongType};
use crate::store::admin::overview::EpochRecord;

/// Whether anything can be done with the keys of which there is one.
pub(crate) fn of_the_right_type(config: &Config, wrong_types: &[WrongType]) -> Vec<Finding> {
    let check = "keys";
    if wrong_types.is_empty() {
        let p = &config.prefix;
        let found = format!(
            "{p}:epoch, {p}:drain, {p}:history and {p}:changes are of their types, or not there"
        );
        return vec![Finding::ok(check, found)];
    }
    let judged = |it: &WrongType| match it.which {
        SingletonKey::Epoch => Finding::fail(check, it.sentence(), it.way_out()),
        SingletonKey::Drain | SingletonKey::History | SingletonKey::Changes => {
            Finding::warn(check, it.sentence(), it.way_out())
        }
    };
    wrong_types.iter().map(judged).collect()
}

/// R14: an instance with other timings than the fleet is refused.
pub(crate) fn agreement(config: &Config, epoch: Option<EpochRecord>, server_ms: u64) -> Finding {
    let check = "fleet";
    let ours = config.lease_ttl;
    let Some(epoch) = epoch else {
        let wait = whole_seconds(LeaseDuration::new(ours).hold_off());
        return Finding::ok(
            check,
            format!(
                "nobody has run here yet: the first start waits {wait} before it polls, or not at all \
                 with --new-fleet"
            ),
        );
    };
    let theirs = Duration::from_millis(epoch.lease_ttl_ms);
    if theirs != ours {
        return Finding::fail(
            check,
            format!(
                "it runs with --lease-ttl {theirs:?}, and we have {ours:?}: run will be refused"
            ),
            format!(
                "use {theirs:?}; or stop every instance, delete the key {}:epoch, and start all with \
                 the new value",
                config.prefix
            ),
        );
    }
    match epoch.hold_off_left(server_ms) {
        Some(left) => Finding::warn(
            check,
            format!(
                "the same --lease-ttl as ours, {ours:?}; a hold-off: nothing is granted for another {}, \
                 because the server is new or has forgotten something. Owners from before go on",
                whole_seconds(left)
            ),
            "wait",
        ),
        None => Finding::ok(check, format!("the same --lease-ttl as ours, {ours:?}; no hold-off")),
    }
}

/// For people, coarse.
fn whole_seconds(time: Duration) -> String {
    format!("{} s", time.as_millis().div_ceil(1_000))
}
