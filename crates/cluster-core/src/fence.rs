//! The fence: a worker without an acknowledged heartbeat stops itself before another worker may take its partitions over.
//!
//! Only heartbeats count, and they count from their sending: an answer that took 4 s proves nothing about now. The way
//! out is in this order: an acknowledged heartbeat, the claim renewed by compare-and-swap, the map read from the stream
//! leader; and that heartbeat must then still be young. A worker whose id a standby has taken fails at the second step.

use std::collections::BTreeMap;
use std::time::Duration;

use super::config::Config;
use super::policy::Policy;
use super::types::Time;

/// Number of sent heartbeats that are remembered. An echo may arrive after the answer, so the newest few are kept.
const MAX_SENT: usize = 16;

/// The progress of a worker on its way out of the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceState {
    /// Not fenced.
    Open,
    /// Fenced; waits for the acknowledgment of a heartbeat that was sent since then.
    AwaitingHeartbeat,
    /// That heartbeat is acknowledged; the claim is being renewed.
    AwaitingClaim {
        /// The sending of the heartbeat.
        sent: Time,
        /// Serial number of the newest request then: only later requests count.
        after: u64,
    },
    /// The claim is renewed; the map is being read.
    AwaitingMap {
        /// The sending of the heartbeat.
        sent: Time,
        /// Serial number of the newest request then: only later requests count.
        after: u64,
    },
}

/// The fence of one worker.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    limit: Duration,
    policy: Policy,
    state: FenceState,
    /// The moment when the fence last closed.
    closed: Time,
    /// The sending of the newest acknowledged heartbeat.
    last_proof: Time,
    /// The sending of each recent heartbeat, by serial number.
    sent: BTreeMap<u64, Time>,
}

impl Fence {
    /// Returns an open fence: a worker that has just claimed its id has proved itself by that.
    pub(crate) fn new(now: Time, config: &Config) -> Self {
        Self {
            limit: config.fence_after(),
            policy: config.policy,
            state: FenceState::Open,
            closed: now,
            last_proof: now,
            sent: BTreeMap::new(),
        }
    }

    pub(crate) fn state(&self) -> FenceState {
        self.state
    }

    pub(crate) fn is_open(&self, now: Time) -> bool {
        self.state == FenceState::Open && self.is_recent(now, self.last_proof)
    }

    /// Returns the moment when the fence closes unless a heartbeat is acknowledged; none if it is closed.
    pub(crate) fn closes_at(&self) -> Option<Time> {
        (self.state == FenceState::Open).then(|| self.last_proof + self.limit)
    }

    /// Records the sending of a heartbeat.
    pub(crate) fn heartbeat_sent(&mut self, now: Time, serial: u64) {
        let newest = self.sent.last_key_value().map(|(serial, _)| *serial);
        invariant!(
            newest.is_none_or(|newest| newest < serial),
            "heartbeat {serial} was sent after {newest:?}"
        );
        self.sent.insert(serial, now);
    }

    /// Returns the sending of a heartbeat, if it is a recent one of this worker.
    pub(crate) fn sent_at(&self, serial: u64) -> Option<Time> {
        self.sent.get(&serial).copied()
    }

    /// Records the acknowledgment of a heartbeat. `newest_request` is the serial number of the newest request.
    pub(crate) fn heartbeat_acknowledged(&mut self, now: Time, serial: u64, newest_request: u64) {
        invariant!(serial <= newest_request, "heartbeat {serial} was answered and never sent");
        let Some(&sent) = self.sent.get(&serial) else { return };
        invariant!(sent <= now, "a heartbeat was sent before it is acknowledged");
        while self.sent.len() > MAX_SENT {
            self.sent.pop_first();
        }
        self.record_proof(self.policy.proven_at(sent, now));
        if self.state == FenceState::AwaitingHeartbeat {
            if self.policy.heartbeat_ends_fence() {
                self.state = FenceState::Open;
            } else if sent >= self.closed && self.is_recent(now, sent) {
                self.state = FenceState::AwaitingClaim { sent, after: newest_request };
            }
        }
    }

    /// Records that this worker was alive at `sent`.
    pub(crate) fn record_proof(&mut self, sent: Time) {
        self.last_proof = self.last_proof.max(sent);
    }

    /// Closes the fence if its time has come. Returns whether it closed now.
    pub(crate) fn tick(&mut self, now: Time) -> bool {
        let must_close = self.state == FenceState::Open && !self.is_recent(now, self.last_proof);
        if must_close {
            self.close(now);
        }
        must_close
    }

    fn close(&mut self, now: Time) {
        invariant!(now >= self.closed, "the fence closed later than now");
        self.state = FenceState::AwaitingHeartbeat;
        self.closed = now;
    }

    /// Records that request `serial` renewed the claim by compare-and-swap.
    pub(crate) fn claim_renewed(&mut self, serial: u64, newest_request: u64) {
        if let FenceState::AwaitingClaim { sent, after } = self.state
            && serial > after
        {
            self.state = FenceState::AwaitingMap { sent, after: newest_request };
        }
    }

    /// Records that request `serial` read the map from the stream leader. Returns whether the fence opened; if the heartbeat
    /// is too old by now, the worker starts again.
    pub(crate) fn map_read(&mut self, now: Time, serial: u64) -> bool {
        let FenceState::AwaitingMap { sent, after } = self.state else { return false };
        if serial <= after {
            return false;
        }
        if !self.is_recent(now, sent) {
            self.close(now);
            return false;
        }
        self.state = FenceState::Open;
        self.record_proof(sent);
        invariant!(self.is_open(now), "a fence that opens is open");
        true
    }

    fn is_recent(&self, now: Time, sent: Time) -> bool {
        now.saturating_sub(sent) <= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Time {
        Time::from_millis(milliseconds)
    }

    fn fence() -> Fence {
        Fence::new(ms(0), &Config::default())
    }

    #[test]
    fn it_closes_counted_from_the_sending_not_from_the_answer() {
        let mut fence = fence();
        fence.heartbeat_sent(ms(1000), 1);
        fence.heartbeat_acknowledged(ms(5000), 1, 1);
        assert!(!fence.tick(ms(5500)));
        assert!(fence.tick(ms(5501)));
    }

    #[test]
    fn without_an_acknowledged_heartbeat_it_closes() {
        let mut fence = fence();
        fence.heartbeat_sent(ms(4000), 1);
        assert!(fence.is_open(ms(4500)));
        assert!(!fence.is_open(ms(4501)));
    }

    #[test]
    fn the_way_out_is_heartbeat_claim_map_in_this_order() {
        let mut fence = fence();
        assert!(fence.tick(ms(10_000)));
        fence.claim_renewed(5, 5);
        assert!(!fence.map_read(ms(10_000), 6));
        fence.heartbeat_sent(ms(10_100), 7);
        fence.heartbeat_acknowledged(ms(10_200), 7, 7);
        assert!(!fence.map_read(ms(10_200), 8));
        fence.claim_renewed(9, 9);
        assert!(fence.map_read(ms(10_300), 10));
        assert!(fence.is_open(ms(10_300)));
    }

    #[test]
    fn a_heartbeat_from_before_the_fence_does_not_open_it() {
        let mut fence = fence();
        fence.heartbeat_sent(ms(4000), 1);
        assert!(fence.tick(ms(4600)));
        fence.heartbeat_acknowledged(ms(4700), 1, 1);
        assert_eq!(fence.state(), FenceState::AwaitingHeartbeat);
    }

    #[test]
    fn a_heartbeat_that_grew_old_on_the_way_out_begins_again() {
        let mut fence = fence();
        assert!(fence.tick(ms(10_000)));
        fence.heartbeat_sent(ms(10_000), 2);
        fence.heartbeat_acknowledged(ms(10_100), 2, 2);
        fence.claim_renewed(3, 3);
        assert!(!fence.map_read(ms(14_501), 4));
        assert_eq!(fence.state(), FenceState::AwaitingHeartbeat);
    }

    #[test]
    fn answers_to_requests_from_before_each_step_do_not_count() {
        let mut fence = fence();
        assert!(fence.tick(ms(10_000)));
        fence.heartbeat_sent(ms(10_000), 2);
        fence.heartbeat_acknowledged(ms(10_100), 2, 4);
        fence.claim_renewed(4, 6);
        assert!(matches!(fence.state(), FenceState::AwaitingClaim { .. }), "renewal 4 was sent before");
        fence.claim_renewed(5, 6);
        assert!(!fence.map_read(ms(10_200), 6), "read 6 was sent before");
        assert!(fence.map_read(ms(10_200), 7));
    }
}
