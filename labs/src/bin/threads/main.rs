//! 64 threads of one process on two `LeaseManager`s, and a poller that panics: is there ever a lease with two
//! owners, a wrong answer, or a lease that is held and not polled? `make threads`: two minutes.
//!
//! A real Redis, the library as a user's program has it: a panic unwinds here, as it does there.
//! `make threads FOR=10s ONLY=owners` is shorter, and one scene of the two.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]

mod owners;
mod panics;

use std::process::ExitCode;
use std::time::Duration;

use leasehold::Config;
use leasehold::config::RedisUrl;

use testkit::redis::RedisServer;

type Scene = fn(&RedisServer, Duration) -> Vec<String>;

const SCENES: [(&str, Scene); 2] = [("owners", owners::run), ("panics", panics::run)];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let time = words.iter().find_map(|it| it.strip_suffix('s')?.parse().ok()).unwrap_or(60);
    let named = |name: &str| words.iter().any(|it| it == name);
    let all = !SCENES.iter().any(|it| named(it.0));
    let mut wrong = Vec::new();
    for (name, scene) in SCENES.iter().filter(|it| all || named(it.0)) {
        println!("{name}, {time} s");
        let redis = RedisServer::start();
        wrong.extend(scene(&redis, Duration::from_secs(time)));
    }
    match &wrong[..] {
        [] => println!("\nnothing was wrong"),
        wrong => println!("\nwrong:\n  {}", wrong.join("\n  ")),
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Leases of one second.
fn config(redis: &RedisServer) -> Config {
    let ms = Duration::from_millis;
    Config {
        redis: RedisUrl::parse(&redis.url()).unwrap(),
        lease_ttl: ms(1_000),
        renew_interval: ms(250),
        heartbeat_ttl: ms(1_000),
        heartbeat_interval: ms(250),
        store_timeout: ms(250),
        new_fleet: true,
        ..Config::default()
    }
}
