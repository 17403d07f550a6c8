//! What does a plan cost, next to plain rendezvous hashing without quotas or memory?
//!
//! From nothing, and when one endpoint of a settled fleet has lost its owner. Interleaved turns.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::fleet::placement::{assign, plan, preference};
use leasehold::fleet::view::View;
use leasehold::model::{EndpointId, InstanceId, Weight};

use testkit::bench::table::{Better, Row};

const TURNS: usize = 7;

pub(crate) fn instances(n: usize) -> Vec<InstanceId> {
    (0..n).map(|it| InstanceId::new(&format!("vm{it}-1794806411005251162-{it:08x}"))).collect()
}

fn endpoints(n: usize) -> Vec<EndpointId> {
    let endpoint = |it| EndpointId::parse(&format!("session-{it}")).expect("a valid id");
    (0..n).map(endpoint).collect()
}

pub(crate) fn view(instances: &[InstanceId], endpoints: &[EndpointId]) -> View {
    let mut view = View::default();
    let live: Vec<_> = instances.iter().map(|it| (it.clone(), Weight(1))).collect();
    view.set_instances(&live);
    for endpoint in endpoints {
        view.add(endpoint);
    }
    view
}

pub(crate) fn settled(mut view: View) -> View {
    for (endpoint, heir) in assign(&view) {
        view.set_owner(&endpoint, heir.as_ref());
    }
    view
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = BootClock.now();
    std::hint::black_box(work());
    BootClock.now().since(begun)
}

pub(crate) fn measure() -> (String, Vec<Row>) {
    let sizes = [(10_000, 10), (100_000, 50), (1_000_000, 50)];
    let rows = sizes.into_iter().flat_map(|(endpoints, instances)| of_size(endpoints, instances));
    (format!("endpoints × instances, {TURNS} turns"), rows.collect())
}

fn of_size(n_endpoints: usize, n_instances: usize) -> [Row; 3] {
    let (endpoints, instances) = (endpoints(n_endpoints), instances(n_instances));
    let me = &instances[0];
    let empty = view(&instances, &endpoints);
    let mut maintained = settled(empty.clone());
    let (mut from_nothing, mut one_change, mut ratio) = (vec![], vec![], vec![]);
    for endpoint in &endpoints[..TURNS] {
        let planned = timed(|| plan(&empty, me)).as_secs_f64();
        from_nothing.push(planned * 1_000.0);
        let changed = timed(|| {
            maintained.set_owner(endpoint, None);
            plan(&maintained, me)
        });
        one_change.push(changed.as_secs_f64() * 1_000.0);
        // A million times fifty takes long, and is only there to compare with.
        if n_endpoints <= 100_000 || ratio.is_empty() {
            let first = |it| preference(it, &instances)[0];
            let plain = timed(|| endpoints.iter().map(first).collect::<Vec<_>>());
            ratio.push(planned / plain.as_secs_f64());
        }
    }
    let row = |what: &str, unit, samples: &[f64]| {
        let name = format!("{n_endpoints} × {n_instances}: {what}");
        Row::new(&name, unit, Better::Less, samples)
    };
    [
        row("plan from nothing", "ms", &from_nothing),
        row("plan after one change", "ms", &one_change),
        row("from nothing / plain rendezvous", "×", &ratio),
    ]
}
