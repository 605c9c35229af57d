//! How benchmarks take time: several rounds, the median counts, nothing is asserted.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The median time of one call of `work`, over `rounds` rounds after one that warms up.
///
/// ```
/// let took = phalanx_testkit::measure::median(5, || (0..1000u64).sum::<u64>());
/// println!("{took:?}");
/// ```
pub fn median<T>(rounds: usize, mut work: impl FnMut() -> T) -> Duration {
    black_box(work());
    let mut times: Vec<Duration> = (0..rounds.max(1))
        .map(|_| {
            let start = Instant::now();
            black_box(work());
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}
