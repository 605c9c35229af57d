//! The broker: values with revisions, compare-and-swap, and the order in which they were stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_cluster_core::types::{Entry, Key, Revision, Value};
use phalanx_cluster_core::{Condition, WriteError, Written};

use crate::HashMap;

/// Values by their keys. Cursors are many and are never gone through: they need no order.
#[derive(Debug, Default)]
struct Entries {
    others: BTreeMap<Key, Entry>,
    cursors: HashMap<Arc<str>, Entry>,
}

impl Entries {
    fn get(&self, key: &Key) -> Option<&Entry> {
        match key {
            Key::Cursor(name) => self.cursors.get(name),
            other => self.others.get(other),
        }
    }

    fn insert(&mut self, key: &Key, entry: Entry) -> Option<Entry> {
        match key {
            Key::Cursor(name) => self.cursors.insert(name.clone(), entry),
            other => self.others.insert(other.clone(), entry),
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Entry> {
        match key {
            Key::Cursor(name) => self.cursors.remove(name),
            other => self.others.remove(other),
        }
    }
}

/// What is stored.
#[derive(Debug, Default)]
pub struct Broker {
    entries: Entries,
    /// What was there before the last change.
    earlier: Entries,
    /// The last revision given, deleted values included.
    last: u64,
    last_stored_at: u64,
}

impl Broker {
    /// Everything that is watched: all but the cursors.
    pub fn watched(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.others.iter()
    }

    /// The keys of the cursors, in order.
    pub fn cursors(&self) -> Vec<Key> {
        let mut names: Vec<_> = self.entries.cursors.keys().cloned().collect();
        names.sort_unstable();
        names.into_iter().map(Key::Cursor).collect()
    }

    /// What is stored under a key.
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// What was stored under a key before it last changed; what is there if it never did.
    pub fn before(&self, key: &Key) -> Option<&Entry> {
        self.earlier.get(key).or_else(|| self.entries.get(key))
    }

    /// Stores a value if the condition holds.
    pub fn write(
        &mut self,
        now_micros: u64,
        key: &Key,
        value: Value,
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
        let written = self.stamp(now_micros);
        let Written { revision, stored_at } = written;
        if let Some(earlier) = self.entries.insert(key, Entry { value, revision, stored_at }) {
            self.earlier.insert(key, earlier);
        }
        Ok(written)
    }

    /// Forgets heartbeats stored before then. Nobody is told.
    pub fn expire_heartbeats(&mut self, before: u64) {
        self.entries.others.retain(|key, entry| {
            entry.stored_at >= before || !matches!(key, Key::Heartbeat(_) | Key::StandbyHeartbeat(_))
        });
    }

    /// Discards ids, heartbeats and the lease, as opening an embedded folder does. Revisions and times keep growing.
    pub fn discard_volatile(&mut self, with_lease: bool) {
        let is_kept = |key: &Key| match key {
            Key::Claim(_) | Key::Heartbeat(_) | Key::StandbyHeartbeat(_) => false,
            Key::Lease => !with_lease,
            _ => true,
        };
        for entries in [&mut self.entries, &mut self.earlier] {
            entries.others.retain(|key, _| is_kept(key));
        }
    }

    /// Removes a value if it is that revision.
    pub fn delete(&mut self, now_micros: u64, key: &Key, revision: Revision) -> Result<Written, WriteError> {
        if self.entries.get(key).map(|entry| entry.revision) != Some(revision) {
            return Err(WriteError::Conflict);
        }
        self.entries.remove(key);
        Ok(self.stamp(now_micros))
    }

    /// Stored times are unique, as a real broker's are to the nanosecond.
    fn stamp(&mut self, now_micros: u64) -> Written {
        self.last += 1;
        self.last_stored_at = now_micros.max(self.last_stored_at + 1);
        Written { revision: Revision(self.last), stored_at: self.last_stored_at }
    }
}
