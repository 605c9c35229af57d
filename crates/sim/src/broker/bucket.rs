//! Values with revisions and compare-and-swap: one bucket of the simulated broker.

use std::collections::BTreeMap;

use phalanx_cluster_core::types::Revision;
use phalanx_cluster_core::{Condition, WriteError, Written};

/// A value with its revision and store time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored<V> {
    pub(crate) value: V,
    pub(crate) revision: Revision,
    pub(crate) stored_at: u64,
}

/// Values by key.
#[derive(Debug)]
pub(crate) struct Bucket<K, V> {
    entries: BTreeMap<K, Stored<V>>,
    /// The values before the last change of each key.
    earlier: BTreeMap<K, Stored<V>>,
    /// The last revision, deletions included.
    last: u64,
    last_stored_at: u64,
}

impl<K: Ord + Clone, V> Default for Bucket<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), earlier: BTreeMap::new(), last: 0, last_stored_at: 0 }
    }
}

impl<K: Ord + Clone, V> Bucket<K, V> {
    /// Returns every value, by key.
    pub(crate) fn entries(&self) -> &BTreeMap<K, Stored<V>> {
        &self.entries
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&Stored<V>> {
        self.entries.get(key)
    }

    /// Returns the value that a key had before its last change; the present one if it never changed.
    pub(crate) fn before(&self, key: &K) -> Option<&Stored<V>> {
        self.earlier.get(key).or_else(|| self.entries.get(key))
    }

    /// Stores a value if the condition holds.
    pub(crate) fn write(
        &mut self,
        now_micros: u64,
        key: &K,
        value: V,
        condition: Condition,
    ) -> Result<Written, WriteError> {
        let there = self.entries.get(key).map(|entry| entry.revision);
        let holds = match condition {
            Condition::None => true,
            Condition::Absent => there.is_none(),
            Condition::Revision(wanted) => there == Some(wanted),
        };
        if !holds {
            return Err(WriteError::Conflict);
        }
        let written = self.next_written(now_micros);
        let Written { revision, stored_at } = written;
        if let Some(earlier) = self.entries.insert(key.clone(), Stored { value, revision, stored_at }) {
            self.earlier.insert(key.clone(), earlier);
        }
        Ok(written)
    }

    /// Deletes a value if it has that revision.
    pub(crate) fn delete(
        &mut self,
        now_micros: u64,
        key: &K,
        revision: Revision,
    ) -> Result<Written, WriteError> {
        if self.entries.get(key).map(|entry| entry.revision) != Some(revision) {
            return Err(WriteError::Conflict);
        }
        self.entries.remove(key);
        Ok(self.next_written(now_micros))
    }

    /// Removes values without a deletion that a watch would see, as expiry does.
    pub(crate) fn expire(&mut self, mut is_expired: impl FnMut(&K, &Stored<V>) -> bool) {
        self.entries.retain(|key, entry| !is_expired(key, entry));
    }

    /// Removes values and their earlier values. Revisions and times keep growing.
    pub(crate) fn discard(&mut self, is_discarded: impl Fn(&K) -> bool) {
        for entries in [&mut self.entries, &mut self.earlier] {
            entries.retain(|key, _| !is_discarded(key));
        }
    }

    /// Returns the next revision. Store times are unique, as a real broker's are to the nanosecond.
    fn next_written(&mut self, now_micros: u64) -> Written {
        self.last += 1;
        self.last_stored_at = now_micros.max(self.last_stored_at + 1);
        Written { revision: Revision(self.last), stored_at: self.last_stored_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_compares_and_keeps_the_value_before() {
        let mut bucket: Bucket<&str, u8> = Bucket::default();
        let first = bucket.write(5, &"key", 1, Condition::Absent).expect("it is absent");
        assert_eq!(bucket.write(5, &"key", 2, Condition::Absent), Err(WriteError::Conflict));
        let second = bucket.write(5, &"key", 2, Condition::Revision(first.revision)).expect("that revision");
        assert!(second.stored_at > first.stored_at, "store times are unique");
        assert_eq!(bucket.before(&"key").map(|entry| entry.value), Some(1));
        assert_eq!(bucket.delete(5, &"key", first.revision), Err(WriteError::Conflict));
        bucket.delete(5, &"key", second.revision).expect("that revision");
        assert_eq!(bucket.get(&"key"), None);
        let again = bucket.write(5, &"key", 3, Condition::Absent).expect("it was deleted");
        assert_eq!(again.revision, Revision(4), "a deletion has a revision too");
    }
}
