//! The link between one process and the broker.

use std::collections::BTreeSet;
use std::time::Duration;

use phalanx_cluster_core::Purpose;
use phalanx_cluster_core::types::{Key, Time};

/// The keys that are watched together. Changes of one bucket are shown in their order; those of two are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchedBucket {
    Ids,
    Heartbeats,
    Election,
    Assignments,
}

impl WatchedBucket {
    /// Returns the bucket of a key.
    pub(crate) fn of(key: &Key) -> Self {
        match key {
            Key::Claim(_) => Self::Ids,
            Key::Heartbeat(_) | Key::StandbyHeartbeat(_) => Self::Heartbeats,
            Key::Lease => Self::Election,
            Key::Map | Key::ClusterState | Key::FleetSize | Key::Cursor(_) => Self::Assignments,
        }
    }
}

/// The link of one process. `E` is the type of its watch events.
#[derive(Debug)]
pub(crate) struct Link<E> {
    /// Until then nothing it sends arrives.
    pub(crate) cut_out: Time,
    /// Until then nothing reaches it.
    pub(crate) cut_in: Time,
    /// Until then it does not reach the Election Agent.
    pub(crate) cut_from_agent: Time,
    /// The additional delay of its answers.
    pub(crate) slowness: Duration,
    /// Whether its heartbeats get lost, and nothing else.
    pub(crate) drops_heartbeats: bool,
    /// The additional delay of its watches.
    pub(crate) watch_delay: Duration,
    /// Whether its watch does not show the next change of the map.
    pub(crate) drops_map: bool,
    /// The purpose of the request that is repeated once, and after how long.
    pub(crate) repeats: Option<(Purpose, Duration)>,
    /// The partitions whose wake-ups it receives.
    pub(crate) subscriptions: BTreeSet<u32>,
    /// The watch events that are delayed, in order, and when they are due.
    delayed: Vec<(Time, WatchedBucket, E)>,
}

impl<E> Default for Link<E> {
    fn default() -> Self {
        Self {
            cut_out: Time::ZERO,
            cut_in: Time::ZERO,
            cut_from_agent: Time::ZERO,
            slowness: Duration::ZERO,
            drops_heartbeats: false,
            watch_delay: Duration::ZERO,
            drops_map: false,
            repeats: None,
            subscriptions: BTreeSet::new(),
            delayed: Vec::new(),
        }
    }
}

impl<E> Link<E> {
    /// Returns the end of the outage of a watch.
    fn watch_blocked_until(&self, bucket: WatchedBucket) -> Time {
        match bucket {
            WatchedBucket::Election => self.cut_in.max(self.cut_from_agent),
            _ => self.cut_in,
        }
    }

    /// Returns whether a watch shows changes immediately.
    pub(crate) fn is_watch_immediate(&self, now: Time, bucket: WatchedBucket) -> bool {
        self.watch_blocked_until(bucket) <= now
            && self.watch_delay.is_zero()
            && !self.drops_map
            && !self.delayed.iter().any(|(_, of, _)| *of == bucket)
    }

    /// Delays a watch event. Returns when it is due: never before an earlier one of the same bucket.
    pub(crate) fn delay(&mut self, now: Time, latency: Duration, bucket: WatchedBucket, event: E) -> Time {
        let late = self.watch_blocked_until(bucket).saturating_sub(now) + self.watch_delay;
        let before = self.delayed.iter().filter(|(_, of, _)| *of == bucket).map(|(at, ..)| *at).max();
        let at = before.unwrap_or_default().max(now + late + latency);
        self.delayed.push((at, bucket, event));
        at
    }

    /// Removes and returns the delayed watch events that are due.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<E> {
        self.delayed.extract_if(.., |(at, ..)| *at <= now).map(|(_, _, event)| event).collect()
    }

    /// Ends every fault.
    pub(crate) fn disable_faults(&mut self, now: Time) {
        self.cut_in = self.cut_in.min(now);
        self.cut_out = self.cut_out.min(now);
        self.slowness = Duration::ZERO;
        self.watch_delay = Duration::ZERO;
        self.drops_heartbeats = false;
        self.drops_map = false;
        self.delayed.iter_mut().for_each(|(at, ..)| *at = now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_shows_changes_of_one_bucket_in_order() {
        let mut link = Link { watch_delay: Duration::from_secs(5), ..Link::default() };
        let (at, latency) = (Time::from_secs, Duration::ZERO);
        assert_eq!(link.delay(at(1), latency, WatchedBucket::Ids, 1), at(6));
        link.watch_delay = Duration::ZERO;
        assert!(!link.is_watch_immediate(at(2), WatchedBucket::Ids), "an earlier event is still to come");
        assert!(link.is_watch_immediate(at(2), WatchedBucket::Election));
        assert_eq!(link.delay(at(2), latency, WatchedBucket::Ids, 2), at(6));
        assert!(link.take_due(at(5)).is_empty());
        assert_eq!(link.take_due(at(6)), [1, 2]);
    }
}
