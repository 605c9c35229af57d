//! The stored names of one group.
//!
//! All names derive from the name of the group, so two groups on one account share nothing. An application whose names are
//! given from outside replaces them here, once.

use std::fmt;

use crate::core::types::{Incarnation, Key, WorkerId, WorkerIncarnation};

/// The maximum length of a group name.
const MAX_GROUP_LEN: usize = 32;
/// The key of a standby's heartbeat is this prefix and the uid of its pod.
const STANDBY: &str = "standby-";
/// The words before the group name in the description of a bucket or log.
const DESCRIPTION: &str = "phalanx group ";

/// A mapping from a neutral name to a name that is given from outside. None keeps the neutral name.
type Rename = fn(&str) -> Option<&'static str>;

/// A bucket of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bucket {
    /// Claims of worker ids.
    StableIds,
    /// Heartbeats.
    Heartbeats,
    /// The map, the cluster state and the fleet size.
    Assignments,
    /// The lease.
    Election,
    /// Cursors.
    Cursors,
}

/// A key of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketKey {
    /// The bucket.
    pub bucket: Bucket,
    /// The key in it.
    pub key: String,
}

impl fmt::Display for BucketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bucket = match self.bucket {
            Bucket::StableIds => "stable ids",
            Bucket::Heartbeats => "heartbeats",
            Bucket::Assignments => "assignments",
            Bucket::Election => "election",
            Bucket::Cursors => "cursors",
        };
        write!(f, "{} ({bucket})", self.key)
    }
}

/// The stored names of one group: worker ids, keys, JSON fields, metrics.
///
/// ```
/// use phalanx_cluster::Names;
/// use phalanx_cluster::core::types::{Key, WorkerId};
///
/// let names = Names::of("invoices");
/// assert_eq!(names.worker(WorkerId(3)), "invoices-3");
/// assert_eq!(names.bucket_key(&Key::Cursor("acme:eu".into())).key, "acme.eu");
/// ```
#[derive(Clone, Debug)]
pub struct Names {
    group: String,
    worker_prefix: String,
    state_key: String,
    fields: Rename,
    metrics: Rename,
}

/// Renaming functions have no equality; two sets of names are equal if they store the same keys.
impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        (&self.group, &self.worker_prefix, &self.state_key)
            == (&other.group, &other.worker_prefix, &other.state_key)
    }
}

impl Eq for Names {}

impl Names {
    /// Returns the names that derive from the name of a group.
    pub fn of(group: impl Into<String>) -> Self {
        let group = group.into();
        Self {
            worker_prefix: group.clone(),
            group,
            state_key: "state".to_owned(),
            fields: |_| None,
            metrics: |_| None,
        }
    }

    /// Sets the prefix of worker ids: `invoices` for `invoices-3`.
    #[must_use]
    pub fn worker_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.worker_prefix = prefix.into();
        self
    }

    /// Sets the key of the leader's state in the bucket of assignments.
    #[must_use]
    pub fn state_key(mut self, key: impl Into<String>) -> Self {
        self.state_key = key.into();
        self
    }

    /// Renames fields of stored JSON.
    #[must_use]
    pub fn fields(mut self, rename: fn(&str) -> Option<&'static str>) -> Self {
        self.fields = rename;
        self
    }

    /// Renames metrics and their labels. A metric that keeps its neutral name has the label `group`.
    #[must_use]
    pub fn metrics(mut self, rename: fn(&str) -> Option<&'static str>) -> Self {
        self.metrics = rename;
        self
    }

    /// Returns the name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Checks the name of the group: 1–32 of `A–Z a–z 0–9 - _`.
    pub fn check(&self) -> Result<(), String> {
        let group = &self.group;
        if STANDBY.strip_suffix('-') == Some(&self.worker_prefix) {
            return Err("worker prefix is \"standby\"; it is reserved for workers without an id".to_owned());
        }
        if group.is_empty() || group.len() > MAX_GROUP_LEN {
            return Err(format!("group name is {group:?}; must be 1 to {MAX_GROUP_LEN} characters"));
        }
        match group.chars().enumerate().find(|(_, c)| !is_allowed(*c)) {
            Some((at, bad)) => Err(format!(
                "group name is {group:?}; {bad:?} at position {} is not allowed: use A–Z a–z 0–9 - _",
                at + 1
            )),
            None => Ok(()),
        }
    }

    /// Returns the text that marks a bucket or log as part of this group.
    pub fn description(&self) -> String {
        format!("{DESCRIPTION}{}", self.group)
    }

    /// Returns the group that a description names, if it names one.
    pub fn described_group(description: &str) -> Option<&str> {
        let (_, name) = description.rsplit_once(DESCRIPTION)?;
        Some(name.split(|c| !is_allowed(c)).next().unwrap_or_default())
    }

    /// Returns the name of a worker id, such as `invoices-3`.
    pub fn worker(&self, id: WorkerId) -> String {
        format!("{}-{}", self.worker_prefix, id.0)
    }

    /// Returns the worker id of a name.
    pub fn parse_worker(&self, text: &str) -> Option<WorkerId> {
        let number = text.strip_prefix(&self.worker_prefix)?.strip_prefix('-')?;
        let id = WorkerId(number.parse().ok()?);
        // `invoices-007` is not an id that this group writes.
        (self.worker(id) == text).then_some(id)
    }

    pub(crate) fn require_worker(&self, text: &str) -> Result<WorkerId, String> {
        let prefix = &self.worker_prefix;
        self.parse_worker(text)
            .ok_or_else(|| format!("invalid worker id {text:?}: expected {prefix}-0, {prefix}-1, …"))
    }

    /// Returns worker id and incarnation as one word, such as `invoices-5.1763301234000000`.
    pub fn format_incarnation(&self, worker: WorkerIncarnation) -> String {
        format!("{}.{}", self.worker(worker.id), worker.incarnation.0)
    }

    /// Parses the text of [`format_incarnation`](Self::format_incarnation).
    pub fn parse_incarnation(&self, text: &str) -> Result<WorkerIncarnation, String> {
        let bad = || format!("invalid lease holder {text:?}: expected a worker id, a dot and an incarnation");
        let (id, incarnation) = text.rsplit_once('.').ok_or_else(bad)?;
        let incarnation = incarnation.parse().map_err(|_| bad())?;
        Ok(WorkerIncarnation { id: self.require_worker(id)?, incarnation: Incarnation(incarnation) })
    }

    /// Returns the bucket and key of a value.
    pub fn bucket_key(&self, key: &Key) -> BucketKey {
        let (bucket, key) = match key {
            Key::Claim(id) => (Bucket::StableIds, self.worker(*id)),
            Key::Heartbeat(id) => (Bucket::Heartbeats, self.worker(*id)),
            Key::StandbyHeartbeat(uid) => (Bucket::Heartbeats, format!("{STANDBY}{uid}")),
            Key::Lease => (Bucket::Election, "leader".to_owned()),
            Key::Map => (Bucket::Assignments, "current".to_owned()),
            Key::ClusterState => (Bucket::Assignments, self.state_key.clone()),
            Key::FleetSize => (Bucket::Assignments, "fleet-size".to_owned()),
            Key::Cursor(partition) => (Bucket::Cursors, partition.replace(':', ".")),
        };
        BucketKey { bucket, key }
    }

    /// Returns the value that a key of a bucket stores; none for a key that this group does not write.
    pub fn parse_key(&self, bucket: Bucket, key: &str) -> Option<Key> {
        Some(match bucket {
            Bucket::StableIds => Key::Claim(self.parse_worker(key)?),
            Bucket::Heartbeats => match key.strip_prefix(STANDBY) {
                Some(uid) => Key::StandbyHeartbeat(uid.into()),
                None => Key::Heartbeat(self.parse_worker(key)?),
            },
            Bucket::Election => (key == "leader").then_some(Key::Lease)?,
            Bucket::Assignments => match key {
                "current" => Key::Map,
                "fleet-size" => Key::FleetSize,
                key if key == self.state_key => Key::ClusterState,
                _ => return None,
            },
            Bucket::Cursors => Key::Cursor(key.replace('.', ":").into()),
        })
    }

    /// Returns the stored name of a JSON field.
    pub(crate) fn field(&self, neutral: &'static str) -> &'static str {
        (self.fields)(neutral).unwrap_or(neutral)
    }

    /// Returns the exported name of a metric or label, if it is given from outside.
    pub(crate) fn metric(&self, neutral: &str) -> Option<&'static str> {
        (self.metrics)(neutral)
    }
}

/// Whether a character may be part of a group name.
fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_name_that_would_break_a_bucket_name_is_rejected_with_its_position() {
        assert_eq!(Names::of("invoices_eu-1").check(), Ok(()));
        assert_eq!(
            Names::of("my group").check(),
            Err("group name is \"my group\"; ' ' at position 3 is not allowed: use A–Z a–z 0–9 - _"
                .to_owned())
        );
        for bad in ["", &"x".repeat(33), "a.b", "ä", "a:b"] {
            assert!(Names::of(bad).check().is_err(), "{bad}");
        }
        assert_eq!(Names::of("x".repeat(32)).check(), Ok(()));
    }

    #[test]
    fn a_description_names_its_group_also_between_other_words() {
        let description = Names::of("invoices").description();
        assert_eq!(Names::described_group(&description), Some("invoices"));
        assert_eq!(Names::described_group(&format!("billing data; {description}")), Some("invoices"));
        assert_eq!(Names::described_group(&format!("{description}; ask Anna")), Some("invoices"));
        assert_eq!(Names::described_group("billing data"), None);
    }

    #[test]
    fn worker_ids_cannot_look_like_standbys() {
        assert!(Names::of("standby").check().unwrap_err().contains("reserved"));
        assert_eq!(Names::of("standby").worker_prefix("jobs").check(), Ok(()));
    }
}
