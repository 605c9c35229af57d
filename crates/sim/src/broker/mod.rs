//! The simulated broker: values with compare-and-swap, the log, the dead letters, and a clock of its own.

mod bucket;
mod log;
mod message;

use std::collections::BTreeSet;
use std::time::Duration;

use phalanx_cluster_core::types::{Entry, Key, LogId, Revision, Sequence, Time, Value};
use phalanx_cluster_core::{Condition, Position, WriteError, Written};

pub(crate) use bucket::{Bucket, Stored};
pub(crate) use log::Log;

pub use message::MessageKind;
pub(crate) use message::{decode, encode, message_id, number_of};

/// The age at which the broker deletes a heartbeat.
const HEARTBEAT_TTL: Duration = Duration::from_secs(30);
/// The broker's time at the start of a run, in microseconds since 1970: nothing else has this clock.
pub(crate) const START: u64 = 1_700_000_000_000_000;

/// The values, messages and dead letters of one group.
#[derive(Debug)]
pub(crate) struct Broker {
    values: Bucket<Key, Value>,
    /// The messages. Their ids are the partition and a number.
    pub(crate) log: Log<(u32, u64)>,
    dead_letters: BTreeSet<(u32, Position)>,
    /// The offset of its clock, in microseconds.
    clock_offset: i64,
}

impl Broker {
    /// An empty broker.
    pub(crate) fn new(retention: Duration) -> Self {
        Self {
            values: Bucket::default(),
            log: Log::new(LogId(1), retention),
            dead_letters: BTreeSet::new(),
            clock_offset: 0,
        }
    }

    /// Returns the broker's time, in microseconds since 1970.
    pub(crate) fn micros(&self, now: Time) -> u64 {
        (START + now.since_origin().as_micros() as u64).saturating_add_signed(self.clock_offset)
    }

    /// Sets the clock forward or back.
    pub(crate) fn step_clock(&mut self, by_micros: i64) {
        self.clock_offset += by_micros;
    }

    /// Returns everything that is watched, which is everything but the cursors.
    pub(crate) fn watched(&self) -> impl Iterator<Item = (&Key, Entry)> {
        // Cursors are last in the order of keys.
        self.values.entries().range(..Key::Cursor("".into())).map(|(key, stored)| (key, entry(stored)))
    }

    /// Returns the keys of the cursors.
    pub(crate) fn cursors(&self) -> Vec<Key> {
        self.values.entries().range(Key::Cursor("".into())..).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the value of a key.
    pub(crate) fn value(&self, key: &Key) -> Option<&Value> {
        self.values.get(key).map(|stored| &stored.value)
    }

    /// Returns the revision of a key.
    pub(crate) fn revision(&self, key: &Key) -> Option<Revision> {
        self.values.get(key).map(|stored| stored.revision)
    }

    /// Returns the entry of a key.
    pub(crate) fn get(&self, key: &Key) -> Option<Entry> {
        self.values.get(key).map(entry)
    }

    /// Returns the entry that a key had before its last change; the present one if it never changed.
    pub(crate) fn before(&self, key: &Key) -> Option<Entry> {
        self.values.before(key).map(entry)
    }

    /// Stores a value if the condition holds.
    pub(crate) fn write(
        &mut self,
        now: Time,
        key: &Key,
        value: Value,
        condition: Condition,
    ) -> Result<Written, WriteError> {
        self.values.write(self.micros(now), key, value, condition)
    }

    /// Deletes a value if it has that revision.
    pub(crate) fn delete(&mut self, now: Time, key: &Key, revision: Revision) -> Result<Written, WriteError> {
        self.values.delete(self.micros(now), key, revision)
    }

    /// Deletes old heartbeats. No watch sees it.
    pub(crate) fn expire_heartbeats(&mut self, now: Time) {
        let limit = self.micros(now).saturating_sub(HEARTBEAT_TTL.as_micros() as u64);
        let is_heartbeat = |key: &Key| matches!(key, Key::Heartbeat(_) | Key::StandbyHeartbeat(_));
        self.values.expire(|key, stored| stored.stored_at < limit && is_heartbeat(key));
    }

    /// Returns the claims that were not renewed for half a minute of the broker's clock.
    pub(crate) fn old_claims(&self, now: Time) -> Vec<Key> {
        let limit = self.micros(now) - 30_000_000;
        let is_old = |key: &Key, entry: &Entry| matches!(key, Key::Claim(_)) && entry.stored_at < limit;
        self.watched().filter(|(key, entry)| is_old(key, entry)).map(|(key, _)| key.clone()).collect()
    }

    /// Discards ids, heartbeats and the lease, as opening an embedded folder does. Revisions and times keep growing.
    pub(crate) fn discard_volatile(&mut self, with_lease: bool) {
        self.values.discard(|key| match key {
            Key::Claim(_) | Key::Heartbeat(_) | Key::StandbyHeartbeat(_) => true,
            Key::Lease => with_lease,
            _ => false,
        });
    }

    /// Deletes and recreates the log. Returns the partitions and sequences of its messages.
    pub(crate) fn recreate_log(&mut self, now: Time) -> Vec<(u32, Sequence)> {
        let log_id = LogId(self.micros(now));
        self.log.recreate(log_id)
    }

    /// Publishes a dead letter, if there is none at that position. Returns whether it was stored now.
    pub(crate) fn append_dead_letter(&mut self, partition: u32, position: Position) -> bool {
        self.dead_letters.insert((partition, position))
    }
}

fn entry(stored: &Stored<Value>) -> Entry {
    Entry { value: stored.value.clone(), revision: stored.revision, stored_at: stored.stored_at }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use phalanx_cluster_core::types::WorkerId;

    use super::*;

    #[test]
    fn watched_values_and_cursors_are_told_apart_and_volatile_ones_discarded() {
        let mut broker = Broker::new(Duration::from_secs(1));
        let cursor = Key::Cursor(Arc::from("tool:1"));
        for key in [Key::Lease, Key::Claim(WorkerId(1)), cursor.clone(), Key::FleetSize] {
            broker.write(Time::ZERO, &key, Value::FleetSize(1), Condition::Absent).expect("it is absent");
        }
        let watched = |broker: &Broker| broker.watched().map(|(key, _)| key.clone()).collect::<Vec<_>>();
        assert_eq!(watched(&broker), [Key::Claim(WorkerId(1)), Key::Lease, Key::FleetSize]);
        assert_eq!(broker.cursors(), [cursor]);
        broker.discard_volatile(true);
        assert_eq!(watched(&broker), [Key::FleetSize]);
    }
}
