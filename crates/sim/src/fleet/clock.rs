//! The clock of one machine.

use std::time::Duration;

use phalanx_cluster_core::types::Time;

/// A clock that began at another time than the virtual one, and that drifts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// The time that it showed at the start of the run, in microseconds.
    offset: i64,
    /// The drift, in parts per million.
    drift: i64,
}

impl Clock {
    /// A clock with an offset and a drift.
    pub(crate) fn new(offset: Duration, drift: i64) -> Self {
        Self { offset: offset.as_micros() as i64, drift }
    }

    /// Returns the time that it shows.
    pub(crate) fn shows(self, now: Time) -> Time {
        let now = now.since_origin().as_micros() as i64;
        // Not in whole seconds: a monotonic clock never goes back, not even by a microsecond.
        Time::from_micros((now + now * self.drift / 1_000_000 + self.offset).max(0) as u64)
    }

    /// Returns when it shows a time.
    pub(crate) fn when(self, shown: Time) -> Time {
        let elapsed = (shown.since_origin().as_micros() as i64 - self.offset).max(0);
        let mut when = elapsed - elapsed * self.drift / (1_000_000 + self.drift) - 2;
        // Rounding: go to the first moment that shows it.
        while self.shows(Time::from_micros(when.max(0) as u64)) < shown {
            when += 1;
        }
        Time::from_micros(when.max(0) as u64)
    }

    /// Pauses from `since` to `now`, and continues with the time that it showed.
    pub(crate) fn suspend(&mut self, since: Time, now: Time) {
        self.offset -= (self.shows(now) - self.shows(since)).as_micros() as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_of_a_shown_time_is_found() {
        let clock = Clock::new(Duration::from_secs(100), 200);
        let shown = clock.shows(Time::from_secs(5_000));
        assert_eq!(shown, Time::from_secs(5_101));
        assert!(clock.shows(clock.when(shown)) >= shown);
    }

    #[test]
    fn a_slow_clock_never_goes_back_and_stands_still_while_it_is_suspended() {
        let mut clock = Clock::new(Duration::from_secs(100), -200);
        let shown: Vec<Time> =
            (999_990..1_000_010).map(|micros| clock.shows(Time::from_micros(micros))).collect();
        assert!(shown.is_sorted(), "{shown:?}");
        let (since, now) = (Time::from_secs(10), Time::from_secs(30));
        let before = clock.shows(since);
        clock.suspend(since, now);
        assert_eq!(clock.shows(now), before);
    }
}
