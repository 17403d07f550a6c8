//! `leasehold history`: who held what, when, and why did it move?

use std::process::ExitCode;

use crate::config::Config;
pub(crate) use crate::inspect::moves::{endpoint, instances, name, why};
use crate::model::{EndpointId, FenceToken, InstanceId, Role};
use crate::store::StoreResult;
use crate::store::admin::runs::Run;
use crate::store::history::{Entry, Stream, in_order};
use crate::store::redis::RedisStore;
use serde_json::{Value, json};

use crate::cli::status::without_controls;
use crate::cli::table::{Cell, Paint, Painter, Side, Table, printable};
use crate::cli::watch::complain;
use crate::cli::{FAILED, fail, say, short_names, utc};

/// How many entries are read at a time.
const PAGE: usize = 1_000;

/// Lists the last events, the newest last.
pub(crate) fn history(
    config: &Config,
    endpoint: Option<&EndpointId>,
    limit: usize,
    as_json: bool,
) -> ExitCode {
    match last_of_both(&RedisStore::of_endpoints(config), config, endpoint, limit) {
        Err(error) => fail(FAILED, &printable(&error.to_string())),
        Ok(found) if as_json => {
            let entries: Vec<Value> = found.iter().map(document).collect();
            say(&without_controls(&format!("{:#}\n", json!({ "entries": entries }))))
        }
        Ok(found) if found.is_empty() => say(&match endpoint {
            Some(endpoint) => format!("Nothing is remembered of {endpoint}.\n"),
            None => "Nothing is remembered yet.\n".into(),
        }),
        Ok(found) => say(&table(&found).shown(Painter::for_stdout())),
    }
}

/// What became of leases, and of verdicts. Verdicts that cannot be read keep nothing else from being shown.
fn last_of_both(
    store: &RedisStore,
    config: &Config,
    endpoint: Option<&EndpointId>,
    limit: usize,
) -> StoreResult<Vec<Entry>> {
    let mut found = last(store, Stream::Leases, config, endpoint, limit)?;
    match last(store, Stream::Changes, config, endpoint, limit) {
        Ok(changes) => found.extend(changes),
        Err(error) => {
            complain(&format!("changes are not shown: {}", printable(&error.to_string())))
        }
    }
    let mut found = in_order(found);
    found.drain(..found.len().saturating_sub(limit));
    Ok(found)
}

/// Back page by page, until there are enough.
fn last(
    store: &RedisStore,
    stream: Stream,
    config: &Config,
    endpoint: Option<&EndpointId>,
    limit: usize,
) -> StoreResult<Vec<Entry>> {
    let mut found: Vec<Entry> = Vec::new();
    let mut before: Option<String> = None;
    while found.len() < limit {
        let count = if endpoint.is_some() { PAGE } else { PAGE.min(limit - found.len()) };
        let page = store.history(stream, before.as_deref(), count, config.store_timeout)?;
        before = page.last().map(|it| it.id.clone());
        let is_last = page.len() < count;
        found.extend(page.into_iter().filter(|it| is_of(it, endpoint)));
        if is_last {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// Whether it is about this endpoint, where one is asked for.
pub(crate) fn is_of(entry: &Entry, endpoint: Option<&EndpointId>) -> bool {
    endpoint.is_none_or(|it| entry.endpoint == it.as_str())
}

/// Lists the last runs of a role, the newest last.
pub(crate) fn runs(config: &Config, role: &Role, limit: usize, as_json: bool) -> ExitCode {
    let store = RedisStore::of_roles(config);
    match store.runs(role.as_lease(), limit, config.store_timeout) {
        Err(error) => fail(FAILED, &printable(&error.to_string())),
        Ok(mut found) => {
            found.reverse();
            say(&match found.is_empty() {
                _ if as_json => {
                    let entries: Vec<Value> = found.iter().map(run_document).collect();
                    without_controls(&format!("{:#}\n", json!({ "entries": entries })))
                }
                true => format!("Nothing is remembered of a run of {role}.\n"),
                false => run_table(&found).shown(Painter::for_stdout()),
            })
        }
    }
}

fn run_table(runs: &[Run]) -> Table {
    let mut table = Table::new(&[
        ("TIME", Side::Left),
        ("EVENT", Side::Left),
        ("WHO", Side::Left),
        ("TERM", Side::Right),
        ("WHAT CAME OF IT", Side::Left),
    ]);
    let others = runs.iter().filter_map(|it| it.owner.as_ref());
    let ids: Vec<InstanceId> =
        runs.iter().map(|it| &it.instance).chain(others).map(|it| InstanceId::new(it)).collect();
    let names = short_names::short(ids.iter());
    for it in runs {
        let mut what: Vec<String> = it.code.iter().map(|it| format!("exit code {it}")).collect();
        what.extend(it.owner.as_ref().map(|it| format!("{} led", name(it, &names))));
        what.extend(it.reason.clone());
        let failed = it.event == "ended" && it.code != Some(0);
        let paint = if failed { Paint::Bad } else { Paint::Plain };
        table.row(vec![
            Cell::new(&utc::date_and_time(it.at_ms)),
            Cell::painted(&it.event, paint),
            Cell::new(&name(&it.instance, &names)),
            Cell::new(&it.term.map_or("-".into(), |it| it.to_string())),
            Cell::painted(&what.join(", "), paint),
        ]);
    }
    table
}

fn run_document(it: &Run) -> Value {
    json!({
        "id": it.id,
        "atMs": it.at_ms,
        "role": it.role,
        "event": it.event,
        "instance": it.instance,
        "term": it.term.map(|FenceToken(it)| it),
        "code": it.code,
        "reason": it.reason,
        "owner": it.owner,
    })
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&[
        ("TIME", Side::Left),
        ("ENDPOINT", Side::Left),
        ("EVENT", Side::Left),
        ("WHO", Side::Left),
        ("FENCE", Side::Right),
        ("WHY", Side::Left),
    ]);
    let ids: Vec<InstanceId> = entries.iter().flat_map(instances).collect();
    let names = short_names::short(ids.iter());
    for it in entries {
        table.row(vec![
            Cell::new(&utc::date_and_time(it.at_ms)),
            Cell::new(endpoint(it)),
            Cell::painted(&it.event, paint(it)),
            Cell::new(&name(&it.instance, &names)),
            Cell::new(&it.fence.map_or("-".into(), |it| it.to_string())),
            Cell::new(&why(it, &names)),
        ]);
    }
    table
}

/// What is ours by plan is nothing to look at.
pub(crate) fn paint(entry: &Entry) -> Paint {
    match entry.event.as_str() {
        "lost" | "failing" => Paint::Bad,
        "recovered" => Paint::Good,
        "reclaimed" => Paint::Watch,
        _ => Paint::Plain,
    }
}

/// An entry for programs.
pub(crate) fn document(entry: &Entry) -> Value {
    json!({
        "id": entry.id,
        "atMs": entry.at_ms,
        "endpoint": entry.endpoint,
        "event": entry.event,
        "instance": entry.instance,
        "fence": entry.fence.map(|FenceToken(it)| it),
        "reason": entry.reason,
        "owner": entry.owner,
        "heir": entry.heir,
    })
}
