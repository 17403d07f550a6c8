//! `leasehold plan` and `leasehold explain`: what would move, and why something is where it is.

use std::process::ExitCode;
use std::time::Duration;

use leasehold::config::Config;
use leasehold::model::{EndpointId, InstanceId};
use leasehold::status::plan::{Forecast, forecast, ranking};
use leasehold::status::{EndpointStatus, InstanceStatus, State, Status, counted};
use leasehold::store::overview::Overview;
use leasehold::store::redis::RedisStore;
use serde_json::{Value, json};

use crate::cli::table::{Cell, Painter, Side, Table, brief, printable};
use crate::cli::{FAILED, fail, say};

fn overview(config: &Config) -> Result<Overview, String> {
    RedisStore::of_polls(config)
        .and_then(|it| it.overview(config.store_timeout))
        .map_err(|error| printable(&error.to_string()))
}

/// What would move where, without touching anything.
pub(crate) fn plan(config: &Config, join: usize, leave: &[String], as_json: bool) -> ExitCode {
    let told = overview(config).and_then(|it| {
        forecast(&it, join, leave).map_err(|unknown| {
            let names = printable(&unknown.join(", "));
            format!("no live instance is called {names}: leasehold status lists them")
        })
    });
    match told {
        Ok(it) if as_json => say(&format!("{:#}\n", forecast_document(&it))),
        Ok(it) => say(&forecast_page(&it)),
        Err(why) => fail(FAILED, &why),
    }
}

fn name(id: Option<&InstanceId>) -> &str {
    id.map_or("nobody", InstanceId::as_str)
}

fn forecast_page(forecast: &Forecast) -> String {
    let total = counted(forecast.endpoints, "endpoint");
    let mut out = match forecast.moves() {
        0 => format!("Nothing would move: {total}.\n"),
        n => format!("{} of {total} would move.\n", counted(n, "lease")),
    };
    if !forecast.flows.is_empty() {
        let mut table =
            Table::new(&[("FROM", Side::Left), ("TO", Side::Left), ("LEASES", Side::Right)]);
        for it in &forecast.flows {
            let cells = [name(it.from.as_ref()), name(it.to.as_ref()), &it.leases.to_string()];
            table.row(cells.into_iter().map(Cell::new).collect());
        }
        out += &format!("\n{}", table.shown(Painter::for_stdout()));
    }
    let mut table = Table::new(&[("INSTANCE", Side::Left), ("WOULD OWN", Side::Right)]);
    for (id, owned) in &forecast.shares {
        table.row(vec![Cell::new(id.as_str()), Cell::new(&owned.to_string())]);
    }
    match forecast.shares.is_empty() {
        true => out + "\nNobody would be left.\n",
        false => format!("{out}\n{}", table.shown(Painter::for_stdout())),
    }
}

fn forecast_document(forecast: &Forecast) -> Value {
    let flows = forecast.flows.iter().map(|it| {
        json!({
            "from": it.from.as_ref().map(InstanceId::as_str),
            "to": it.to.as_ref().map(InstanceId::as_str),
            "leases": it.leases,
        })
    });
    let shares = forecast.shares.iter().map(|(id, n)| json!({"id": id.as_str(), "owned": n}));
    json!({
        "endpoints": forecast.endpoints,
        "moves": forecast.moves(),
        "flows": flows.collect::<Vec<_>>(),
        "instances": shares.collect::<Vec<_>>(),
    })
}

/// Why an endpoint is where it is.
pub(crate) fn explain(config: &Config, endpoint: &EndpointId, as_json: bool) -> ExitCode {
    let explained = overview(config).and_then(|overview| {
        let order = ranking(&overview, endpoint);
        let status = Status::of(overview, Duration::MAX);
        let found = status.endpoints.iter().find(|it| it.name == endpoint.as_str());
        let found = found.ok_or_else(|| {
            format!("there is neither a session nor a lease {endpoint}: see leasehold status --all")
        })?;
        let sentences = reasons(&status, found);
        Ok(match as_json {
            true => format!("{:#}\n", explained_document(found, &order, &sentences)),
            false => explained_page(&status, found, &order, &sentences),
        })
    });
    match explained {
        Ok(text) => say(&text),
        Err(why) => fail(FAILED, &why),
    }
}

/// Where it is, why, and what would have to happen for it to move; a sentence each.
fn reasons(status: &Status, it: &EndpointStatus) -> Vec<String> {
    let mut said = Vec::new();
    let owner = it.lease.as_ref().map(|it| printable(it.it.as_str()));
    let heir = it.preferred.as_ref().map(|it| printable(it.as_str()));
    let (endpoint, word) = (printable(&it.name), it.state.word());
    match (&it.invalid, &owner) {
        (Some(error), _) => said.push(format!("Nobody polls {endpoint}: {error}.")),
        (None, Some(owner)) => said.push(format!("{owner} owns {endpoint}, which is {word}.")),
        (None, None) => said.push(format!("Nobody owns {endpoint}, which is {word}.")),
    }
    if let Some(left) = status.hold_off {
        let left = brief(left);
        said.push(format!(
            "Redis is holding off for {left}: nothing is granted or moved until then."
        ));
    }
    match (it.state, &owner, &heir) {
        (State::Paused | State::Invalid | State::NoSession, Some(_), _) => {
            said.push("Its owner gives it back as soon as it looks.".into());
        }
        (State::Paused, None, _) => {
            said.push("It is polled again when its session says so.".into())
        }
        (State::Invalid | State::NoSession, None, _) => (),
        (_, Some(owner), _) if !it.owner_lives => said.push(format!(
            "{owner} has no heartbeat: the lease is taken over now, or ends by itself."
        )),
        (_, Some(owner), Some(heir)) if owner == heir => said
            .push(format!("It stays there: {owner} lives and does not own more than its share.")),
        (_, Some(owner), Some(heir)) => said.push(format!(
            "{heir} should have it, because {owner} owns more than its share or is drained; \
             {heir} asks for it, and it moves when the running poll has ended."
        )),
        (_, None, Some(heir)) => said.push(format!("{heir} takes it next.")),
        (_, _, None) => said.push("No live instance may take it: all are drained or gone.".into()),
    }
    if owner.is_some() && owner == heir {
        said.push(
            "It would move if its owner stops, dies or is drained, or if somebody joins who is \
             below its share and comes before its owner in the order of preference."
                .into(),
        );
    }
    said
}

fn explained_page(
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
    ]);
    let find = |id: &InstanceId| status.instances.iter().find(|it| it.id == *id);
    for (n, (id, instance)) in order.iter().filter_map(|id| Some((id, find(id)?))).enumerate() {
        let InstanceStatus { heartbeat, owned, fair_share, .. } = instance;
        let weight = heartbeat.as_ref().map_or("-".into(), |it| it.it.to_string());
        let cells = [(n + 1).to_string(), id.to_string(), weight, owned.to_string()];
        let mut cells: Vec<Cell> = cells.iter().map(|it| Cell::new(it)).collect();
        cells.push(Cell::new(&format!("{fair_share:.1}")));
        table.row(cells);
    }
    if !order.is_empty() {
        out += &format!("\n{}", table.shown(Painter::for_stdout()));
    }
    if let Some(fence) = it.fence {
        let left = it.lease.as_ref().map_or("-".into(), |it| brief(it.left));
        out += &format!("\nFence {fence}, {left} left of the lease.\n");
    }
    out
}

fn explained_document(it: &EndpointStatus, order: &[InstanceId], sentences: &[String]) -> Value {
    let ms = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
    let lease = it.lease.as_ref();
    json!({
        "endpoint": it.name,
        "state": it.state.word(),
        "owner": lease.map(|it| it.it.as_str()),
        "leftMs": lease.map(|it| ms(it.left)),
        "fence": it.fence.map(|it| it.0),
        "preferred": it.preferred.as_ref().map(InstanceId::as_str),
        "preference": order.iter().map(InstanceId::as_str).collect::<Vec<_>>(),
        "why": sentences,
    })
}
