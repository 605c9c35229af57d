//! Which key of which bucket a value lies behind.

use std::fmt;

use crate::core::types::{Key, WorkerId};

/// One of the buckets of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bucket {
    /// Who holds which id.
    StableIds,
    /// Signs of life.
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

const STANDBY: &str = "standby-";

/// Where a value lies.
///
/// ```
/// use phalanx_cluster::codec::bucket_key;
/// use phalanx_cluster::core::types::Key;
///
/// assert_eq!(bucket_key(&Key::Cursor("etch-01:A".into())).key, "etch-01.A");
/// ```
pub fn bucket_key(key: &Key) -> BucketKey {
    let (bucket, key) = match key {
        Key::Claim(id) => (Bucket::StableIds, id.to_string()),
        Key::Heartbeat(id) => (Bucket::Heartbeats, id.to_string()),
        Key::StandbyHeartbeat(uid) => (Bucket::Heartbeats, format!("{STANDBY}{uid}")),
        Key::Lease => (Bucket::Election, "leader".to_owned()),
        Key::Map => (Bucket::Assignments, "current".to_owned()),
        Key::ClusterState => (Bucket::Assignments, "defender-state".to_owned()),
        Key::FleetSize => (Bucket::Assignments, "fleet-size".to_owned()),
        Key::Cursor(partition) => (Bucket::Cursors, partition.replace(':', ".")),
    };
    BucketKey { bucket, key }
}

/// What lies there; none for a key that is not ours.
pub fn parse_key(bucket: Bucket, key: &str) -> Option<Key> {
    Some(match bucket {
        Bucket::StableIds => Key::Claim(worker_id(key)?),
        Bucket::Heartbeats => match key.strip_prefix(STANDBY) {
            Some(uid) => Key::StandbyHeartbeat(uid.into()),
            None => Key::Heartbeat(worker_id(key)?),
        },
        Bucket::Election => (key == "leader").then_some(Key::Lease)?,
        Bucket::Assignments => match key {
            "current" => Key::Map,
            "defender-state" => Key::ClusterState,
            "fleet-size" => Key::FleetSize,
            _ => return None,
        },
        Bucket::Cursors => Key::Cursor(key.replace('.', ":").into()),
    })
}

/// `defender-N` as a number.
pub(super) fn worker_id(text: &str) -> Option<WorkerId> {
    let id = WorkerId(text.strip_prefix("defender-")?.parse().ok()?);
    // `defender-007` is somebody else's.
    (id.to_string() == text).then_some(id)
}
