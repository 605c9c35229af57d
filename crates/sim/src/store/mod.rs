//! The result store: rows of messages, and the outages of the store.

mod history;
mod rows;

use std::time::Duration;

use phalanx_cluster_core::types::Time;

pub(crate) use history::{History, mix};
pub(crate) use rows::{Results, Rows, StoreRules};

/// The time that a writer or reader waits for the store.
pub(crate) const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// The fate of a write to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreWrite {
    /// It is acknowledged.
    Acknowledged,
    /// Its writer gives up, and it arrives after this time.
    Late(Duration),
    /// Its writer gives up, and it never arrives.
    Lost,
}

/// The result store that all workers share.
#[derive(Debug)]
pub(crate) struct ResultStore {
    pub(crate) rows: Rows,
    down_until: Time,
    late_until: Time,
    lag: Duration,
    strategy: u64,
}

impl ResultStore {
    /// Creates an empty store.
    pub(crate) fn new(rules: StoreRules) -> Self {
        let (down_until, late_until, lag) = (Time::ZERO, Time::ZERO, Duration::ZERO);
        Self { rows: Rows::new(rules), down_until, late_until, lag, strategy: 0 }
    }

    /// Returns whether the store does not answer.
    pub(crate) fn is_down(&self, now: Time) -> bool {
        self.down_until > now
    }

    /// Returns the fate of a write that is sent now.
    pub(crate) fn write_path(&self, now: Time) -> StoreWrite {
        if self.late_until > now {
            StoreWrite::Late(self.lag)
        } else if self.is_down(now) {
            StoreWrite::Lost
        } else {
            StoreWrite::Acknowledged
        }
    }

    /// Returns the strategy by which handlers process messages.
    pub(crate) fn strategy(&self) -> u64 {
        self.strategy
    }

    /// Makes handlers process messages by another strategy.
    pub(crate) fn change_strategy(&mut self) {
        self.strategy += 1;
    }

    /// Starts an outage.
    pub(crate) fn fail_until(&mut self, until: Time) {
        self.down_until = self.down_until.max(until);
    }

    /// Delays writes that are sent until then; their writers give up.
    pub(crate) fn delay_writes(&mut self, until: Time, lag: Duration) {
        self.late_until = self.late_until.max(until);
        self.lag = lag;
    }

    /// Ends outages and delays.
    pub(crate) fn disable_faults(&mut self, now: Time) {
        self.down_until = self.down_until.min(now);
        self.late_until = self.late_until.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_loses_writes_and_a_delay_makes_them_late() {
        let mut store = ResultStore::new(StoreRules { higher_wins: true, token_counts: true });
        let at = Time::from_secs;
        assert_eq!(store.write_path(at(1)), StoreWrite::Acknowledged);
        store.fail_until(at(5));
        assert_eq!(store.write_path(at(4)), StoreWrite::Lost);
        store.delay_writes(at(4), Duration::from_secs(9));
        assert_eq!(store.write_path(at(3)), StoreWrite::Late(Duration::from_secs(9)));
        store.disable_faults(at(3));
        assert_eq!(store.write_path(at(3)), StoreWrite::Acknowledged);
    }
}
