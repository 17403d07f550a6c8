//! Which instance is preferred for an endpoint? Hashes that are the same on every instance, also for repeatable jitter. Pure.

use std::hash::Hasher;

use fnv::FnvHasher;

/// FNV-1a of a name, fed as bytes (a `str`'s own hash would add one).
pub(crate) fn fnv1a(text: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// How much `instance` wants `endpoint`. FNV alone leaves the high bits nearly equal for ids such as
/// `session-1`, `session-2`, which would give them all to one instance; the finalizer mixes them.
pub(crate) fn affinity(instance: u64, endpoint: u64) -> u64 {
    let mut mixed = instance ^ endpoint;
    mixed ^= mixed >> 33;
    mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^= mixed >> 33;
    mixed = mixed.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

/// A number in `0..span` that is the same everywhere for the same text: jitter that repeats.
pub fn spread(text: &str, span: u64) -> u64 {
    affinity(fnv1a(text), 0) % span.max(1)
}
