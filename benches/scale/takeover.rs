//! One instance is killed: how long after its leases could be taken have others taken them?

use std::io;
use std::time::Duration;

use crate::scene::{INSTANCES, PAGE, Scene};

/// How often it is looked who has what.
const LOOK: Duration = Duration::from_millis(50);
/// Leases and heartbeats last 30 s.
const PATIENCE_MS: f64 = 90_000.0;

/// A lease of the one that was killed.
struct Lease {
    key: String,
    /// When it may be taken: it has ended, or its owner's heartbeat has (R13).
    free_at_ms: f64,
}

/// Seconds from when each lease could be taken to when it was seen to be another's.
pub(crate) fn measure(scene: &mut Scene) -> io::Result<Vec<f64>> {
    let victim = scene.fleet.pop().ok_or_else(|| io::Error::other("there is no fleet"))?;
    let prefix = victim.prefix();
    let keys = scene.leases();
    let owners = scene.owners(&keys)?;
    let owner = owners.iter().flatten().find(|it| it.starts_with(&prefix)).cloned();
    let owner = owner.ok_or_else(|| io::Error::other("the one to be killed has nothing"))?;
    let its = keys.into_iter().zip(&owners).filter(|it| it.1.as_ref() == Some(&owner));
    let its: Vec<String> = its.map(|it| it.0).collect();
    victim.crash();
    let mut left = leases(scene, &owner, its)?;
    let killed_ms = scene.server_ms()?;
    let mut late = Vec::with_capacity(left.len());
    while !left.is_empty() {
        scene.wait(LOOK);
        let now_ms = scene.server_ms()?;
        if now_ms > killed_ms + PATIENCE_MS {
            return Err(io::Error::other(format!("{} leases were never taken over", left.len())));
        }
        // Those that cannot have been taken yet are not looked at.
        let due: Vec<usize> = (0..left.len()).filter(|it| left[*it].free_at_ms < now_ms).collect();
        let keys: Vec<String> = due.iter().map(|it| left[*it].key.clone()).collect();
        let found = scene.owners(&keys)?;
        let seen_ms = scene.server_ms()?;
        for (at, who) in due.into_iter().zip(found).rev() {
            if who.is_some_and(|it| it != owner) {
                late.push((seen_ms - left[at].free_at_ms) / 1_000.0);
                left.swap_remove(at);
            }
        }
    }
    let least = scene.sessions.count / INSTANCES - 1;
    match u32::try_from(late.len()) {
        Ok(n) if n >= least => Ok(late),
        _ => Err(io::Error::other(format!("the one that was killed had {} leases", late.len()))),
    }
}

/// When each can be taken, as the server says right after the owner's death.
fn leases(scene: &mut Scene, owner: &str, keys: Vec<String>) -> io::Result<Vec<Lease>> {
    let now_ms = scene.server_ms()?;
    let mut beat = redis::cmd("PTTL");
    beat.arg(format!("poll:node:{owner}"));
    let beat_ms: f64 = beat.query(&mut scene.line).map_err(io::Error::other)?;
    let mut leases = Vec::with_capacity(keys.len());
    for page in keys.chunks(PAGE) {
        let mut pipe = redis::pipe();
        for key in page {
            pipe.cmd("PTTL").arg(key);
        }
        let left: Vec<f64> = pipe.query(&mut scene.line).map_err(io::Error::other)?;
        for (key, left_ms) in page.iter().zip(left) {
            leases.push(Lease { key: key.clone(), free_at_ms: now_ms + left_ms.min(beat_ms) });
        }
    }
    Ok(leases)
}
