//! The history that a handler keeps of its partition.

/// The history of a partition: a chain over every message that counts, and the numbers it has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) chain: u64,
    /// Numbers of the publisher that were processed, as ranges.
    seen: Vec<(u64, u64)>,
}

impl History {
    pub(crate) fn knows(&self, number: u64) -> bool {
        self.seen.iter().any(|&(low, high)| (low..=high).contains(&number))
    }

    pub(crate) fn with(&self, number: u64) -> Self {
        let mut seen = self.seen.clone();
        match seen.iter_mut().find(|(_, high)| *high + 1 == number) {
            Some((_, high)) => *high = number,
            None => seen.push((number, number)),
        }
        Self { chain: mix(self.chain, number + 1), seen }
    }
}

/// Mixes a word into a chain.
pub(crate) fn mix(chain: u64, word: u64) -> u64 {
    let z = (chain ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 29)
}
