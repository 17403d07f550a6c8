//! `leasehold explain`: why is an endpoint where it is, is it polled, and what would have to happen for it
//! to move? In sentences.

use std::process::ExitCode;
use std::time::Duration;

use crate::config::Config;
use crate::fleet::session_cache::understood_with_odd_fields;
use crate::inspect::status::explain::{is_weightless, reasons};
use crate::inspect::status::plan::ranking;
use crate::inspect::status::{EndpointStatus, Status};
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
