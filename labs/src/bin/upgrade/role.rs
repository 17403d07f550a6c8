//! One role through the same: three candidates run `leasehold lead`, and their versions change one by one.
//!
//! In the table a role's *polls* are the terms in which its command ran, its *overlaps* are two commands at once, and
//! its *gap* is the longest time without one.

use std::time::Duration;

use testkit::lab::play::Scenario;
use testkit::lab::verdict::Verdict;
use testkit::lead::{Hosts, PACE, TTL, leading};
use testkit::process::{Instance, ms};

use crate::versions::Version::{self, New, Old};

/// A leader that is told to stop ends its command, gives the role up, and another candidate starts the command.
const HANDOVER: Duration = ms(1_500);
/// From the end of a dead leader's lease to the next command.
const TAKEOVER: Duration = ms(1_500);

pub(crate) const SCENES: &[Scenario] = &[
    ("role, upgrade", "three old candidates become new ones, the leader last", |_| {
        Ok(replace_all(Old, New))
    }),
    ("role, downgrade", "three new candidates become old ones, the leader last", |_| {
        Ok(replace_all(New, Old))
    }),
    ("role, old leader dies", "an old leader gets SIGKILL, a new one takes over", |_| {
        Ok(kill_leader(Old, New))
    }),
    ("role, new leader dies", "a new leader gets SIGKILL, an old one takes over", |_| {
        Ok(kill_leader(New, Old))
    }),
];

fn candidate(hosts: &Hosts, version: Version, args: &[&str]) -> Instance {
    hosts.lead_by(version.program(), args)
}

/// Three candidates, of which the first leads.
fn candidates(hosts: &Hosts, versions: [Version; 3]) -> Vec<Instance> {
    let mut candidates = vec![candidate(hosts, versions[0], &["--new-fleet"])];
    hosts.wait_for_life(0);
    candidates.extend(versions[1..].iter().map(|&version| candidate(hosts, version, &[])));
    for candidate in &candidates[1..] {
        candidate.wait_for("event=leader.follower");
    }
    candidates
}

/// Followers first, as an operator would: each change of the leader is a hand-over to the other version.
fn replace_all(from: Version, to: Version) -> Verdict {
    let hosts = Hosts::without_warm_up();
    let mut candidates = candidates(&hosts, [from; 3]);
    let mut wrong = Vec::new();
    for n in [1, 2, 0] {
        let lives = hosts.lives().len();
        let led = leading(&hosts, &candidates) == n;
        let status = candidates[n].term();
        // `lead` passes on the exit code of its command, which SIGTERM ended; a follower has no command.
        if status.code() != Some(if led { 143 } else { 0 }) {
            wrong.push(format!("candidate {n} ended with {status}"));
        }
        candidates[n] = candidate(&hosts, to, &[]);
        if led {
            hosts.wait_for_life(lives);
        } else {
            candidates[n].wait_for("event=leader.follower");
        }
    }
    verdict(&hosts, HANDOVER, wrong)
}

fn kill_leader(leader: Version, heir: Version) -> Verdict {
    let hosts = Hosts::without_warm_up();
    let mut candidates = candidates(&hosts, [leader, heir, heir]);
    candidates[0].kill9();
    hosts.wait_for_life(1);
    verdict(&hosts, TTL + TAKEOVER, Vec::new())
}

/// Fails at once if two commands ever ran at a time.
fn verdict(hosts: &Hosts, bound: Duration, mut wrong: Vec<String>) -> Verdict {
    let (gap, polls) = (hosts.longest_vacancy(), hosts.lives().len());
    if gap > bound + PACE {
        wrong.push(format!("nobody worked for {gap:?}"));
    }
    let (results, overlaps, stale, stalled, again) = (0, 0, 0, Duration::ZERO, Duration::ZERO);
    let bound = bound + PACE;
    Verdict { polls, results, overlaps, stale, gap, bound, stalled, again, wrong, promised: true }
}
