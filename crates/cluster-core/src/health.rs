//! The healthy clock: it runs only while our own heartbeats return through the watch.
//!
//! "Not heard for 6 s" means nothing while no worker can be heard. So every silence is counted on this clock, which stops
//! when our own heartbeat does not return, and every count starts again from zero when it does.

use std::time::Duration;

use super::config::Config;
use super::policy::Policy;
use super::types::Time;

/// A moment on the healthy clock: how far the clock had run by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HealthyInstant(Duration);

#[derive(Clone, Debug)]
pub(super) struct HealthyClock {
    echo_limit: Duration,
    policy: Policy,
    /// When the newest echo was sent; the clock runs until that is too old.
    echo: Option<Time>,
    /// How far the clock has run, and when that was counted.
    elapsed: Duration,
    counted_at: Time,
    /// The moment on this clock when health last returned.
    healthy_since: HealthyInstant,
}

impl HealthyClock {
    pub(super) fn new(now: Time, config: &Config) -> Self {
        Self {
            echo_limit: config.echo_limit(),
            policy: config.policy,
            echo: None,
            elapsed: Duration::ZERO,
            counted_at: now,
            healthy_since: HealthyInstant(Duration::ZERO),
        }
    }

    /// A heartbeat of our own, sent at `sent`, has come back.
    pub(super) fn echoed(&mut self, now: Time, sent: Time) {
        invariant!(sent <= now, "a heartbeat that was sent at {sent:?} returned at {now:?}");
        let was_healthy = self.is_healthy(now);
        self.advance(now);
        self.echo = self.echo.max(Some(sent));
        if !was_healthy && self.is_healthy(now) && !self.policy.clock_ignores_health() {
            self.healthy_since = self.now();
        }
    }

    pub(super) fn echo_limit(&self) -> Duration {
        self.echo_limit
    }

    pub(super) fn is_healthy(&self, now: Time) -> bool {
        self.echo.is_some_and(|sent| now.saturating_sub(sent) <= self.echo_limit)
    }

    pub(super) fn advance(&mut self, now: Time) {
        let until = self.echo.map_or(Time::ZERO, |sent| sent + self.echo_limit).min(now);
        let until = if self.policy.clock_ignores_health() { now } else { until };
        invariant!(until <= now, "the healthy clock never runs ahead");
        self.elapsed += until.saturating_sub(self.counted_at);
        self.counted_at = self.counted_at.max(now);
    }

    /// This moment. The clock must have been advanced to it.
    pub(super) fn now(&self) -> HealthyInstant {
        HealthyInstant(self.elapsed)
    }

    /// Whether health has lasted since then.
    pub(super) fn is_recent(&self, mark: HealthyInstant) -> bool {
        mark >= self.healthy_since
    }

    /// How much healthy time has passed since `mark`, or since health last returned, whichever is less.
    pub(super) fn since(&self, mark: HealthyInstant) -> Duration {
        self.elapsed.saturating_sub(mark.max(self.healthy_since).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    fn clock_with_echo_at(second: u64) -> HealthyClock {
        let mut clock = HealthyClock::new(s(0), &Config::default());
        clock.echoed(s(second), s(second));
        clock
    }

    #[test]
    fn without_an_echo_no_time_passes() {
        let mut clock = HealthyClock::new(s(0), &Config::default());
        let start = clock.now();
        clock.advance(s(100));
        assert_eq!(clock.since(start), Duration::ZERO);
    }

    #[test]
    fn it_runs_for_three_seconds_after_the_sending_of_the_last_echo() {
        let mut clock = clock_with_echo_at(10);
        let start = clock.now();
        clock.advance(s(12));
        assert_eq!(clock.since(start), Duration::from_secs(2));
        clock.advance(s(60));
        assert_eq!(clock.since(start), Duration::from_secs(3));
    }

    #[test]
    fn every_count_starts_anew_when_health_returns() {
        let mut clock = clock_with_echo_at(10);
        let before = clock.now();
        clock.advance(s(13));
        clock.echoed(s(60), s(60));
        clock.advance(s(62));
        assert_eq!(clock.since(before), Duration::from_secs(2));
    }

    #[test]
    fn an_old_echo_that_arrives_late_is_no_health() {
        let mut clock = HealthyClock::new(s(0), &Config::default());
        clock.echoed(s(10), s(5));
        assert!(!clock.is_healthy(s(10)));
    }
}
