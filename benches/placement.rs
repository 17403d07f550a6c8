//! What does a plan cost, next to plain rendezvous hashing without quotas or memory?
//!
//! From nothing, and when one endpoint of a settled fleet has lost its owner. Interleaved turns; the median,
//! and in brackets the fastest and the slowest.

use std::io::{self, Write};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::model::{EndpointId, InstanceId, Weight};
use leasehold::pipeline::placement::{assign, plan, preference};
use leasehold::pipeline::view::View;

const TURNS: usize = 7;

fn instances(n: usize) -> Vec<InstanceId> {
    (0..n).map(|it| InstanceId::new(&format!("vm{it}-1794806411005251162-{it:08x}"))).collect()
}

fn endpoints(n: usize) -> Vec<EndpointId> {
    let endpoint = |it| EndpointId::parse(&format!("session-{it}")).expect("a valid id");
    (0..n).map(endpoint).collect()
}

fn view(instances: &[InstanceId], endpoints: &[EndpointId]) -> View {
    let mut view = View::default();
    let live: Vec<_> = instances.iter().map(|it| (it.clone(), Weight(1))).collect();
    view.set_instances(&live);
    for endpoint in endpoints {
        view.add(endpoint);
    }
    view
}

fn settled(mut view: View) -> View {
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

/// The median, the fastest and the slowest.
fn summary(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let ms = |at: usize| times[at].as_secs_f64() * 1_000.0;
    format!("{:.2} ms ({:.2}–{:.2})", ms(times.len() / 2), ms(0), ms(times.len() - 1))
}

fn measure(n_endpoints: usize, n_instances: usize) -> [String; 3] {
    let (endpoints, instances) = (endpoints(n_endpoints), instances(n_instances));
    let me = &instances[0];
    let empty = view(&instances, &endpoints);
    let mut maintained = settled(empty.clone());
    let (mut from_nothing, mut one_change, mut naive) = (vec![], vec![], vec![]);
    for turn in 0..TURNS {
        from_nothing.push(timed(|| plan(&empty, me)));
        one_change.push(timed(|| {
            maintained.set_owner(&endpoints[turn], None);
            plan(&maintained, me)
        }));
        // A million times fifty takes long, and is only there to compare with.
        if n_endpoints <= 100_000 || turn == 0 {
            let first = |it| preference(it, &instances)[0];
            naive.push(timed(|| endpoints.iter().map(first).collect::<Vec<_>>()));
        }
    }
    [from_nothing, one_change, naive].map(summary)
}

fn main() {
    let mut out = io::stdout();
    let [sizes, nothing, change, plain] =
        ["endpoints × instances", "plan from nothing", "one change", "plain rendezvous"];
    let _ = writeln!(out, "{sizes:<21} {nothing:>26} {change:>26} {plain:>30}");
    for (endpoints, instances) in [(10_000, 10), (100_000, 50), (1_000_000, 50)] {
        let [nothing, change, plain] = measure(endpoints, instances);
        let sizes = format!("{endpoints:>9} × {instances}");
        let _ = writeln!(out, "{sizes:<21} {nothing:>26} {change:>26} {plain:>30}");
    }
}
