//! A bucket of bytes with history and expiry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use phalanx_cluster::backend::{BucketConfig, Entry, Error, WatchEvent};
use phalanx_cluster_core::Condition;
use phalanx_cluster_core::types::Revision;

use crate::broker::{Bucket, Stored};

/// One bucket of a server.
#[derive(Debug)]
pub(crate) struct StoreBucket {
    name: String,
    pub(crate) description: String,
    history: usize,
    ttl: Option<Duration>,
    values: Bucket<String, Bytes>,
    /// The retained changes by revision; a deletion has no value.
    changes: BTreeMap<Revision, (String, Option<Stored<Bytes>>)>,
    /// The revisions of the retained changes of each key.
    revisions: BTreeMap<String, VecDeque<Revision>>,
}

impl StoreBucket {
    /// An empty bucket.
    pub(crate) fn new(config: &BucketConfig) -> Self {
        Self {
            name: config.name.clone(),
            description: config.description.clone().unwrap_or_default(),
            history: usize::from(config.history),
            ttl: config.ttl,
            values: Bucket::default(),
            changes: BTreeMap::new(),
            revisions: BTreeMap::new(),
        }
    }

    /// Deletes values that are too old. No watch sees it.
    pub(crate) fn expire(&mut self, now_micros: u64) {
        let Some(ttl) = self.ttl else { return };
        let limit = now_micros.saturating_sub(ttl.as_micros() as u64);
        self.values.expire(|_, stored| stored.stored_at < limit);
        self.changes.retain(|_, (_, stored)| stored.as_ref().is_none_or(|stored| stored.stored_at >= limit));
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<Entry> {
        self.values.get(&key.to_owned()).map(|stored| entry(key, stored))
    }

    /// Returns the value that a key had before its last change.
    pub(crate) fn before(&self, key: &str) -> Option<Entry> {
        self.values.before(&key.to_owned()).map(|stored| entry(key, stored))
    }

    /// Returns the keys that have a value.
    pub(crate) fn keys(&self) -> BTreeSet<String> {
        self.values.entries().keys().cloned().collect()
    }

    /// Writes a value if the condition holds.
    pub(crate) fn write(
        &mut self,
        now_micros: u64,
        key: &str,
        value: Bytes,
        condition: Condition,
    ) -> Result<WatchEvent, Error> {
        let owned = key.to_owned();
        let written = self.values.write(now_micros, &owned, value.clone(), condition);
        let Ok(written) = written else { return Err(self.conflict("write", key)) };
        let stored = Stored { value, revision: written.revision, stored_at: written.stored_at };
        let event = WatchEvent::Put(entry(key, &stored));
        self.retain_change(owned, written.revision, Some(stored));
        Ok(event)
    }

    /// Deletes a value if it has that revision.
    pub(crate) fn delete(
        &mut self,
        now_micros: u64,
        key: &str,
        revision: Revision,
    ) -> Result<WatchEvent, Error> {
        let owned = key.to_owned();
        let deleted = self.values.delete(now_micros, &owned, revision);
        let Ok(deleted) = deleted else { return Err(self.conflict("delete", key)) };
        self.retain_change(owned, deleted.revision, None);
        Ok(WatchEvent::Delete { key: key.to_owned(), revision: deleted.revision })
    }

    /// Returns the first events of a watch: the changes after a revision, or all values, and the mark after them.
    pub(crate) fn watch_after(&self, after: Revision) -> Vec<WatchEvent> {
        let mut events: Vec<WatchEvent> = if after == Revision(0) {
            let mut entries: Vec<Entry> =
                self.values.entries().iter().map(|(key, stored)| entry(key, stored)).collect();
            entries.sort_by_key(|entry| entry.revision);
            entries.into_iter().map(WatchEvent::Put).collect()
        } else {
            let later = self.changes.range(Revision(after.0 + 1)..);
            later.map(|(revision, (key, stored))| event(key, *revision, stored.as_ref())).collect()
        };
        events.push(WatchEvent::Current);
        events
    }

    fn retain_change(&mut self, key: String, revision: Revision, stored: Option<Stored<Bytes>>) {
        let revisions = self.revisions.entry(key.clone()).or_default();
        revisions.push_back(revision);
        while revisions.len() > self.history {
            revisions.pop_front().map(|old| self.changes.remove(&old));
        }
        self.changes.insert(revision, (key, stored));
    }

    fn conflict(&self, what: &str, key: &str) -> Error {
        let found = self.get(key).map_or(Revision(0), |entry| entry.revision);
        Error::conflict(format!("{what} of {key} in {}", self.name), Some(found))
    }
}

fn entry(key: &str, stored: &Stored<Bytes>) -> Entry {
    Entry {
        key: key.to_owned(),
        value: stored.value.clone(),
        revision: stored.revision,
        stored_at: stored.stored_at,
    }
}

fn event(key: &str, revision: Revision, stored: Option<&Stored<Bytes>>) -> WatchEvent {
    match stored {
        Some(stored) => WatchEvent::Put(entry(key, stored)),
        None => WatchEvent::Delete { key: key.to_owned(), revision },
    }
}
