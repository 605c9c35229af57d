//! The fence: a worker without an acknowledged heartbeat stops itself before another worker may take its partitions over.
//!
//! Only heartbeats count, and they count from their sending: an answer that took 4 s proves nothing about now. The way
//! out is in this order: an acknowledged heartbeat, the claim renewed by compare-and-swap, the map read from the stream
//! leader; and that heartbeat must then still be young. A worker whose id a standby has taken fails at the second step.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ProtocolRule;
use super::config::Config;
use super::types::Time;

/// Where a worker stands on its way out of the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FenceState {
    /// Not fenced.
    Open,
    /// Fenced; waits for a heartbeat sent since then to be acknowledged.
    AwaitingHeartbeat,
    /// That heartbeat was sent then; the claim is being renewed.
    AwaitingClaim {
        /// When the heartbeat was sent.
        sent: Time,
    },
    /// The claim is ours; the map is being read.
    AwaitingMap {
        /// When the heartbeat was sent.
        sent: Time,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Fence {
    limit: Duration,
    counts_from_sending: bool,
    exits_in_order: bool,
    stage: FenceState,
    /// When the fence last closed.
    closed: Time,
    /// When the newest acknowledged heartbeat was sent.
    last_proof: Time,
    /// Heartbeats without an answer, by serial, and when they were sent.
    sent: BTreeMap<u64, Time>,
}

impl Fence {
    /// A worker that has just got its id has proved itself by that.
    pub(super) fn new(now: Time, config: &Config) -> Self {
        Self {
            limit: config.fence_after(),
            counts_from_sending: config.enforces(ProtocolRule::FenceFromSending),
            exits_in_order: config.enforces(ProtocolRule::FenceExitOrder),
            stage: FenceState::Open,
            closed: now,
            last_proof: now,
            sent: BTreeMap::new(),
        }
    }

    pub(super) fn stage(&self) -> FenceState {
        self.stage
    }

    pub(super) fn is_open(&self, now: Time) -> bool {
        self.stage == FenceState::Open && self.is_recent(now, self.last_proof)
    }

    /// When the fence closes unless a heartbeat is acknowledged.
    pub(super) fn closes_at(&self) -> Option<Time> {
        (self.stage == FenceState::Open).then(|| self.last_proof + self.limit)
    }

    pub(super) fn heartbeat_sent(&mut self, now: Time, serial: u64) {
        self.sent.insert(serial, now);
    }

    /// When a heartbeat was sent, if it is one of ours.
    pub(super) fn sent_at(&self, serial: u64) -> Option<Time> {
        self.sent.get(&serial).copied()
    }

    pub(super) fn heartbeat_acknowledged(&mut self, now: Time, serial: u64) {
        let Some(&sent) = self.sent.get(&serial) else { return };
        // An echo may come after the answer, so the newest few are kept.
        while self.sent.len() > 16 {
            self.sent.pop_first();
        }
        self.record_proof(if self.counts_from_sending { sent } else { now });
        if self.stage == FenceState::AwaitingHeartbeat && !self.exits_in_order {
            self.stage = FenceState::Open;
        }
        if self.stage == FenceState::AwaitingHeartbeat && sent >= self.closed && self.is_recent(now, sent) {
            self.stage = FenceState::AwaitingClaim { sent };
        }
    }

    /// Something that was sent then proves that this worker lives.
    pub(super) fn record_proof(&mut self, sent: Time) {
        self.last_proof = self.last_proof.max(sent);
    }

    /// Closes the fence if its time has come; says whether it closed now.
    pub(super) fn tick(&mut self, now: Time) -> bool {
        let must_close = self.stage == FenceState::Open && !self.is_recent(now, self.last_proof);
        if must_close {
            self.close(now);
        }
        must_close
    }

    pub(super) fn close(&mut self, now: Time) {
        self.stage = FenceState::AwaitingHeartbeat;
        self.closed = now;
    }

    /// The claim was renewed by compare-and-swap.
    pub(super) fn claim_renewed(&mut self) {
        if let FenceState::AwaitingClaim { sent } = self.stage {
            self.stage = FenceState::AwaitingMap { sent };
        }
    }

    /// The map was read from the stream leader. Says whether the fence is open now; if the heartbeat has grown too old
    /// meanwhile, it begins again.
    pub(super) fn map_read(&mut self, now: Time) -> bool {
        let FenceState::AwaitingMap { sent } = self.stage else { return false };
        if self.is_recent(now, sent) {
            self.stage = FenceState::Open;
            self.last_proof = self.last_proof.max(sent);
            return true;
        }
        self.close(now);
        false
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
        fence.heartbeat_acknowledged(ms(5000), 1);
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
        fence.claim_renewed();
        assert!(!fence.map_read(ms(10_000)));
        fence.heartbeat_sent(ms(10_100), 7);
        fence.heartbeat_acknowledged(ms(10_200), 7);
        assert!(!fence.map_read(ms(10_200)));
        fence.claim_renewed();
        assert!(fence.map_read(ms(10_300)));
        assert!(fence.is_open(ms(10_300)));
    }

    #[test]
    fn a_heartbeat_from_before_the_fence_does_not_open_it() {
        let mut fence = fence();
        fence.heartbeat_sent(ms(4000), 1);
        assert!(fence.tick(ms(4600)));
        fence.heartbeat_acknowledged(ms(4700), 1);
        assert_eq!(fence.stage(), FenceState::AwaitingHeartbeat);
    }

    #[test]
    fn a_heartbeat_that_grew_old_on_the_way_out_begins_again() {
        let mut fence = fence();
        assert!(fence.tick(ms(10_000)));
        fence.heartbeat_sent(ms(10_000), 2);
        fence.heartbeat_acknowledged(ms(10_100), 2);
        fence.claim_renewed();
        assert!(!fence.map_read(ms(14_501)));
        assert_eq!(fence.stage(), FenceState::AwaitingHeartbeat);
    }
}
