//! Do 10,000 endpoints notice when the fleet below them is restarted, or a third of it dies at once?
//! `make rolling`: some minutes of the whole machine, so not part of `cargo test`.
//!
//! Real processes of the release binary, a private Redis, and an endpoint that records every poll.
//! After `make build`, `cargo run --profile lab -p labs --bin rolling -- WORD` plays only the scenes whose name contains WORD.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]

mod lapse;
mod recorder;
mod restart;

use std::process::ExitCode;
use std::time::Duration;

use testkit::bounds::Verdict;
use testkit::measure::Stalls;
use testkit::process::{Scene, ms};
use testkit::takeovers::Takeovers;

const ENDPOINTS: usize = 10_000;
const INTERVAL: Duration = Duration::from_secs(10);
/// The defaults, which the tests make shorter.
const DEFAULTS: [&str; 10] = [
    "--lease-ttl=30s",
    "--renew-interval=10s",
    "--heartbeat-ttl=30s",
    "--heartbeat-interval=10s",
    "--store-timeout=2s",
    "--interval=10s",
    "--timeout=10s",
    "--workers=16",
    "--drain-timeout=10s",
    "--log-level=debug", // names every lease, however many there are
];

type Play = fn(&mut Verdict);

fn main() -> ExitCode {
    let scenes: [(&str, Play); 4] = [
        ("recorder", recorder::keeps_up),
        ("rolling restart", restart::rolling_restart),
        ("mass lapse", lapse::mass_lapse),
        ("default timings", default_timings),
    ];
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut verdict = Verdict::default();
    for (name, scene) in scenes {
        if words.is_empty() || words.iter().any(|it| name.contains(it.as_str())) {
            println!("\n{name}");
            scene(&mut verdict);
        }
    }
    verdict.code()
}

/// SC-002 as it is written: 30 s. Counted from the SIGKILL, right after a heartbeat, to the first poll by
/// another instance, at an interval shorter than that. A lease was renewed up to 10 s before, and ends
/// as much earlier.
fn default_timings(verdict: &mut Verdict) {
    let ttl = Duration::from_secs(30);
    let scene = Scene::new(200);
    let mut fleet = scene.fleet_with(2, &[&DEFAULTS[..], &["--interval=5s"]].concat());
    let stalls = Stalls::watch(&scene.redis);
    let mut takeovers = Takeovers::new("takeover at the default timings");
    takeovers.kill(&scene, &mut fleet.pop().unwrap(), ttl, &stalls);
    verdict.within(&takeovers.crash, ttl + ms(500));
    verdict.sound(&scene.target);
}
