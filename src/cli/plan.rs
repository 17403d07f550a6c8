//! `leasehold plan`: which endpoints would move if instances joined or left?

use std::process::ExitCode;

use crate::config::Config;
use crate::inspect::status::counted;
use crate::inspect::status::plan::{Forecast, forecast};
use crate::model::InstanceId;
use crate::store::admin::overview::Overview;
use crate::store::redis::RedisStore;
use serde_json::{Value, json};

use crate::cli::table::{Cell, Painter, Side, Table, printable};
use crate::cli::usage::nearest;
use crate::cli::{FAILED, fail, say};

/// Everything there is, or why it could not be read.
pub(crate) fn overview(config: &Config) -> Result<Overview, String> {
    RedisStore::of_endpoints(config)
        .overview(config.store_timeout)
        .map_err(|error| printable(&error.to_string()))
}

/// What would move where, without touching anything.
pub(crate) fn plan(config: &Config, join: usize, leave: &[String], as_json: bool) -> ExitCode {
    let told = overview(config).and_then(|it| {
        forecast(&it, join, leave).map_err(|unknown| {
            let names = printable(&unknown.join(", "));
            let living = it.instances.iter().flat_map(|it| [it.0.host(), it.0.as_str()]);
            let way_out = match nearest(&unknown[0], living) {
                Some(near) => format!("did you mean {}?", printable(near)),
                None => "leasehold status lists them".into(),
            };
            format!("no live instance is called {names}: {way_out}")
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
