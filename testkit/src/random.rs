//! The one generator of random numbers of tests, simulator and labs: the same numbers for a seed every time.

use std::cell::Cell;

/// xorshift64*, seeded through splitmix64 so that neighbouring seeds do not resemble each other.
pub struct Random(Cell<u64>);

impl Random {
    /// Any seed will do, 0 too.
    pub fn new(seed: u64) -> Self {
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(Cell::new((mixed ^ (mixed >> 31)) | 1))
    }

    fn next(&self) -> u64 {
        let mut state = self.0.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.0.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number below `n`.
    pub fn below(&self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `n` of a thousand cases.
    pub fn permille(&self, n: u64) -> bool {
        self.below(1_000) < n
    }

    /// One of these.
    pub fn pick<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap_or(0)]
    }

    /// A number up to `high`, small ones more often: each half as likely as the one of half its size.
    pub fn skewed(&self, high: u64) -> u64 {
        let bits = u64::from(64 - high.max(1).leading_zeros());
        self.below((1 << self.between(1, bits)).min(high) + 1)
    }
}
