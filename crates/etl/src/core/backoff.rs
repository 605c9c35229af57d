//! When to try a page again, and when to give up.

use std::fmt;
use std::time::Duration;

/// However patient a source asks us to be, a day is the most we take at its word.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a page could not be had, where trying again may help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The source answered with this status: 403, 429, 502 or 503.
    Status(u16),
    /// The source did not answer in time.
    TimedOut,
    /// The connection failed, or the body was cut.
    Broken(String),
    /// The page held fewer records than the source declares, or changed between requests.
    Incomplete(String),
}

impl Fault {
    /// Whether the source said that we ask too much.
    pub fn is_rate_limit(&self) -> bool {
        matches!(self, Self::Status(403 | 429))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "the source answered {status}"),
            Self::TimedOut => f.write_str("the source did not answer in time"),
            Self::Broken(what) | Self::Incomplete(what) => f.write_str(what),
        }
    }
}

/// How often and how patiently one page is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Retries in a row for one page before the run fails.
    pub max_retries: u32,
    /// The wait before the first retry; it doubles with each further one.
    pub retry_delay: Duration,
}

impl Policy {
    /// How long to wait after `failures` failures in a row (at least 1), or `None` to give up.
    ///
    /// `jitter` is in `0.0..1.0` and adds up to a quarter, so that providers do not return all at once. A source that
    /// names a time (`Retry-After`) is obeyed: the wait is never shorter than that.
    ///
    /// ```
    /// use std::time::Duration;
    /// use phalanx_etl::core::backoff::Policy;
    ///
    /// let policy = Policy { max_retries: 3, retry_delay: Duration::from_secs(5) };
    /// assert_eq!(policy.wait(2, None, 0.0), Some(Duration::from_secs(10)));
    /// assert_eq!(policy.wait(1, Some(Duration::from_secs(60)), 0.0), Some(Duration::from_secs(60)));
    /// assert_eq!(policy.wait(4, None, 0.0), None);
    /// ```
    pub fn wait(&self, failures: u32, retry_after: Option<Duration>, jitter: f64) -> Option<Duration> {
        if failures > self.max_retries {
            return None;
        }
        let doublings = failures.saturating_sub(1).min(16);
        let grown = self.retry_delay.saturating_mul(1 << doublings).min(WAIT_MAX);
        let jittered = grown + grown.mul_f64(0.25 * jitter.clamp(0.0, 1.0));
        Some(jittered.max(retry_after.unwrap_or_default()).min(WAIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { max_retries: 3, retry_delay: Duration::from_secs(5) };

    #[test]
    fn the_wait_doubles_and_jitter_adds_at_most_a_quarter() {
        let waits: Vec<_> = (1..=4).map(|failures| POLICY.wait(failures, None, 0.0)).collect();
        let s = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(waits, [s(5), s(10), s(20), None]);
        assert_eq!(POLICY.wait(1, None, 1.0), Some(Duration::from_millis(6_250)));
    }

    #[test]
    fn retry_after_is_a_lower_bound_and_a_hostile_one_is_cut_at_a_day() {
        assert_eq!(POLICY.wait(3, Some(Duration::from_secs(7)), 0.0), Some(Duration::from_secs(20)));
        assert_eq!(POLICY.wait(1, Some(Duration::from_secs(90)), 0.5), Some(Duration::from_secs(90)));
        assert_eq!(POLICY.wait(1, Some(Duration::MAX), 0.0), Some(Duration::from_secs(86_400)));
    }

    #[test]
    fn only_403_and_429_are_rate_limits() {
        let limits: Vec<_> =
            [403, 429, 502, 503].into_iter().map(|s| Fault::Status(s).is_rate_limit()).collect();
        assert_eq!(limits, [true, true, false, false]);
        assert!(!Fault::TimedOut.is_rate_limit());
    }
}
