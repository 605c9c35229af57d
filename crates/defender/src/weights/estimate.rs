//! Weights from the runs themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::weight;
use crate::record::{Chamber, Metadata};

/// How often weights are estimated anew (`WEIGHT_UPDATE_INTERVAL_SECONDS`).
pub const UPDATE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// What a worker has seen of the runs of its chambers since the last estimate.
#[derive(Debug)]
pub struct Estimator {
    interval: Duration,
    due: Instant,
    seen: BTreeMap<Chamber, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    runs: u64,
    svids: u64,
    /// Values in all traces together.
    values: u64,
    seconds: f64,
    /// Seconds of each run times the sensors it had.
    sensor_seconds: f64,
}

impl Estimator {
    /// Nothing seen yet; the first estimate is due one interval from now.
    pub fn new(now: Instant, interval: Duration) -> Self {
        Self { interval, due: now + interval, seen: BTreeMap::new() }
    }

    /// A run of the chamber had so many sensors with so many values together, and took so long. One without any tells
    /// nothing.
    pub fn observe(&mut self, chamber: &Chamber, svids: u32, values: u64, duration: Duration) {
        if svids == 0 || values == 0 || duration.is_zero() {
            return;
        }
        let seen = self.seen.entry(chamber.clone()).or_default();
        seen.runs += 1;
        seen.svids += u64::from(svids);
        seen.values = seen.values.saturating_add(values);
        seen.seconds += duration.as_secs_f64();
        seen.sensor_seconds += f64::from(svids) * duration.as_secs_f64();
    }

    /// When to ask for the next estimate.
    pub fn next_deadline(&self) -> Instant {
        self.due
    }

    /// The estimates if they are due, of every chamber that had runs since the last ones; `at` is what they are dated.
    pub fn estimates(&mut self, now: Instant, at: Timestamp) -> Option<Vec<Metadata>> {
        if now < self.due {
            return None;
        }
        self.due = now + self.interval;
        Some(
            std::mem::take(&mut self.seen)
                .into_iter()
                .map(|(chamber, seen)| seen.estimate(chamber, at))
                .collect(),
        )
    }

    /// A chamber has moved away: whoever has it now sees its runs.
    pub fn forget(&mut self, chamber: &Chamber) {
        self.seen.remove(chamber);
    }
}

/// An estimator that the pipeline feeds and a background task reads. Clones share it.
#[derive(Clone, Debug)]
pub struct SharedEstimator(Arc<Mutex<Estimator>>);

impl SharedEstimator {
    /// Creates an estimator without runs; see [`Estimator::new`].
    pub fn new(now: Instant, interval: Duration) -> Self {
        Self(Arc::new(Mutex::new(Estimator::new(now, interval))))
    }

    /// Locks the estimator.
    pub fn lock(&self) -> MutexGuard<'_, Estimator> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// The means over the runs.
    fn estimate(&self, chamber: Chamber, last_updated: Timestamp) -> Metadata {
        let runs = self.runs.max(1) as f64;
        let svid_count = (self.svids as f64 / runs).round().max(1.0) as u32;
        let collection_freq_hz = self.values as f64 / self.sensor_seconds;
        let context_duration_seconds = self.seconds / runs;
        let weight = weight(svid_count, collection_freq_hz, context_duration_seconds);
        Metadata { chamber, svid_count, collection_freq_hz, context_duration_seconds, weight, last_updated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_estimate_comes_every_24_hours_from_the_runs_since_the_last() {
        let (start, chamber) = (Instant::now(), Chamber::new("etch-01", "A").unwrap());
        let mut estimator = Estimator::new(start, UPDATE_INTERVAL);
        assert_eq!(estimator.next_deadline(), start + 24 * HOUR);
        for hour in 0..24 {
            estimator.observe(&chamber, 100, 100 * 1200, Duration::from_secs(1200));
            assert_eq!(estimator.estimates(start + hour * HOUR, Timestamp::UNIX_EPOCH), None);
        }
        let estimates = estimator.estimates(start + 24 * HOUR, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(
            estimates,
            [Metadata {
                chamber: chamber.clone(),
                svid_count: 100,
                collection_freq_hz: 1.0,
                context_duration_seconds: 1200.0,
                weight: 120_000,
                last_updated: Timestamp::UNIX_EPOCH,
            }]
        );
        assert_eq!(estimator.estimates(start + 47 * HOUR, Timestamp::UNIX_EPOCH), None);
        assert_eq!(estimator.estimates(start + 48 * HOUR, Timestamp::UNIX_EPOCH), Some(vec![]));
    }

    #[test]
    fn runs_of_different_length_weigh_as_they_are_on_average() {
        let (start, chamber) = (Instant::now(), Chamber::new("etch-01", "A").unwrap());
        let mut estimator = Estimator::new(start, HOUR);
        // 10 sensors at 2 Hz for 100 s, then 10 at 2 Hz for 300 s.
        estimator.observe(&chamber, 10, 2_000, Duration::from_secs(100));
        estimator.observe(&chamber, 10, 6_000, Duration::from_secs(300));
        // Nothing can be learned from these.
        estimator.observe(&chamber, 0, 5, HOUR);
        estimator.observe(&chamber, 5, 0, HOUR);
        estimator.observe(&chamber, 5, 5, Duration::ZERO);
        let estimate = estimator.estimates(start + HOUR, Timestamp::UNIX_EPOCH).unwrap().remove(0);
        assert_eq!((estimate.svid_count, estimate.collection_freq_hz, estimate.weight), (10, 2.0, 4_000));
    }

    #[test]
    fn a_chamber_that_moved_away_is_not_estimated() {
        let (start, chamber) = (Instant::now(), Chamber::new("etch-01", "A").unwrap());
        let mut estimator = Estimator::new(start, HOUR);
        estimator.observe(&chamber, 1, 1, HOUR);
        estimator.forget(&chamber);
        assert_eq!(estimator.estimates(start + HOUR, Timestamp::UNIX_EPOCH), Some(vec![]));
    }
}
