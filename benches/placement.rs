//! What does a plan cost, next to plain rendezvous hashing without quotas or memory?
//!
//! From nothing, and when one endpoint of a settled fleet has lost its owner. Medians of interleaved turns.

use std::io::{self, Write};
use std::time::Duration;

use fnv::FnvHashMap;
use leasehold::clock::{BootClock, Clock};
use leasehold::model::{EndpointId, InstanceId, Weight};
use leasehold::pipeline::placement::{View, assign, preference};

const TURNS: usize = 7;

fn view(endpoints: usize, instances: usize) -> View {
    let instance =
        |n: usize| (InstanceId::new(&format!("vm{n}-1794806411005251162-{n:08x}")), Weight(1));
    let endpoint = |n: usize| EndpointId::parse(&format!("session-{n}")).expect("a valid id");
    View {
        instances: (0..instances).map(instance).collect(),
        endpoints: (0..endpoints).map(endpoint).collect(),
        owners: FnvHashMap::default(),
    }
}

fn settled(mut view: View) -> View {
    let owners = assign(&view).into_iter().flatten();
    view.owners = view.endpoints.iter().cloned().zip(owners).collect();
    view.owners.remove(&view.endpoints[0].clone());
    view
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = BootClock.now();
    std::hint::black_box(work());
    BootClock.now().since(begun)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1_000.0
}

fn main() {
    let mut out = io::stdout();
    let _ =
        writeln!(out, "endpoints × instances   plan from nothing   one change   plain rendezvous");
    for (endpoints, instances) in [(10_000, 10), (100_000, 50)] {
        let (empty, settled) = (view(endpoints, instances), settled(view(endpoints, instances)));
        let ids: Vec<InstanceId> = empty.instances.iter().map(|it| it.0.clone()).collect();
        let plain = || -> Vec<InstanceId> {
            empty.endpoints.iter().map(|it| preference(it, &ids)[0].clone()).collect()
        };
        let (mut from_nothing, mut one_change, mut naive) = (vec![], vec![], vec![]);
        for _ in 0..TURNS {
            from_nothing.push(timed(|| assign(&empty)));
            one_change.push(timed(|| assign(&settled)));
            naive.push(timed(plain));
        }
        let _ = writeln!(
            out,
            "{endpoints:>9} × {instances:<9} {:>15.1} ms {:>9.1} ms {:>15.1} ms",
            median(from_nothing),
            median(one_change),
            median(naive)
        );
    }
}
