//! How many of the questions of the last minutes were answered.

use std::time::{Duration, Instant};

const SLICES: usize = 30;
const SLICE: Duration = Duration::from_secs(10);

/// Counts over a window of five minutes, in slices of ten seconds.
#[derive(Debug)]
pub(super) struct Rate {
    began: Instant,
    /// Of each slice: which it is, hits, questions.
    slices: [(u64, u64, u64); SLICES],
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, slices: [(0, 0, 0); SLICES] }
    }

    fn number(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs() / SLICE.as_secs()
    }

    pub(super) fn count(&mut self, now: Instant, hit: bool) {
        let number = self.number(now);
        let slice = &mut self.slices[number as usize % SLICES];
        if slice.0 != number {
            *slice = (number, 0, 0);
        }
        slice.1 += u64::from(hit);
        slice.2 += 1;
    }

    /// Hits among the questions, 0 to 1; 0 where nothing was asked.
    pub(super) fn at(&self, now: Instant) -> f64 {
        let number = self.number(now);
        let recent = self.slices.iter().filter(|slice| slice.0 + SLICES as u64 > number && slice.0 <= number);
        let (hits, all) = recent.fold((0, 0), |(hits, all), slice| (hits + slice.1, all + slice.2));
        if all == 0 { 0.0 } else { hits as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_more_than_five_minutes_ago_counts_no_more() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut rate = Rate::new(start);
        assert_eq!(rate.at(start), 0.0);
        rate.count(at(1), false);
        for second in 2..5 {
            rate.count(at(second), true);
        }
        assert_eq!(rate.at(at(5)), 0.75);
        rate.count(at(200), true);
        assert_eq!(rate.at(at(299)), 0.8);
        assert_eq!(rate.at(at(301)), 1.0);
        assert_eq!(rate.at(at(600)), 0.0);
    }
}
