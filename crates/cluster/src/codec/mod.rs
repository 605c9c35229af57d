//! How values are stored: JSON with the field names of the requirements.
//!
//! Every value carries a format number `v`. Whoever rewrites a value keeps the fields it does not know, since a rolling
//! update mixes versions: [`Codec`] remembers them by key. A value that cannot be read is an error that names the key and
//! the reason; it is never taken for an absent one.

mod keys;
mod map;
mod parts;
mod records;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Map;
use thiserror::Error;

pub use self::keys::{Bucket, BucketKey, bucket_key, parse_key};
pub use self::map::MapMetadata;
pub use self::parts::{MAX_MAP_BYTES, PartManifest, SplitMap, is_part, join, split};
pub(crate) use self::records::LeaseRecord;
pub use self::records::{format_incarnation, parse_incarnation};
use crate::core::types::{AssignmentMap, Key, Value, WorkerId};
use crate::names;

/// The format that is written.
pub const FORMAT: u32 = 1;

/// A stored value that cannot be read. It is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the value of {key} cannot be read: {reason}; it is left as it is")]
pub struct DecodeError {
    /// Where it is.
    pub key: String,
    /// What is wrong with it.
    pub reason: String,
}

impl DecodeError {
    pub(crate) fn new(key: &Key, reason: impl ToString) -> Self {
        Self { key: bucket_key(key).to_string(), reason: reason.to_string() }
    }
}

/// What was read where a map is: the map, or the names of its parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// A value.
    Value(Value),
    /// A map that lies in parts.
    Parts(PartManifest),
}

/// Unknown fields of a value.
type UnknownFields = Map<String, serde_json::Value>;

/// Writes and reads values, and keeps the fields that it does not know.
#[derive(Debug, Default)]
pub struct Codec {
    rest: Mutex<BTreeMap<Key, UnknownFields>>,
    /// Who holds each id, by its heartbeat: the map names pods.
    pods: Mutex<BTreeMap<WorkerId, Arc<str>>>,
}

impl Codec {
    /// The stored form of a value. `now` is a wall-clock time for people to read; nothing is decided by it.
    pub fn encode(&self, key: &Key, value: &Value, now: &str) -> Bytes {
        let mut rest = lock(&self.rest).get(key).cloned().unwrap_or_default();
        match value {
            Value::Claim(claim) => records::claim(key, claim, now, rest),
            Value::Heartbeat(beat) => records::heartbeat(beat, now),
            Value::Lease(lease) => records::lease(lease, rest),
            Value::ClusterState(state) => records::cluster_state(state, now, rest),
            Value::FleetSize(size) => records::fleet_size(*size, rest),
            Value::Cursor(cursor) => records::cursor(cursor, rest),
            Value::Map(map) => {
                let pods = lock(&self.pods);
                let facts = MapMetadata { now, pods: &pods, calculation: None };
                map::encode(map, &facts, &mut rest)
            }
        }
    }

    /// The stored form of a map that was just calculated.
    pub fn encode_map(&self, map: &AssignmentMap, now: &str, calculation: std::time::Duration) -> Bytes {
        let mut rest = lock(&self.rest).get(&Key::Map).cloned().unwrap_or_default();
        let pods = lock(&self.pods);
        map::encode(map, &MapMetadata { now, pods: &pods, calculation: Some(calculation) }, &mut rest)
    }

    /// Reads a value, and remembers what it does not know of it.
    pub fn decode(&self, key: &Key, bytes: &[u8]) -> Result<Decoded, DecodeError> {
        let bad = |reason: String| DecodeError::new(key, reason);
        let (value, rest) = match key {
            Key::Claim(_) => records::read_claim(bytes).map_err(bad)?,
            Key::Heartbeat(id) => {
                let beat = records::read_heartbeat(bytes).map_err(bad)?;
                if let Value::Heartbeat(beat) = &beat {
                    lock(&self.pods).insert(*id, beat.pod.name.clone());
                }
                return Ok(Decoded::Value(beat));
            }
            Key::StandbyHeartbeat(_) => {
                return Ok(Decoded::Value(records::read_heartbeat(bytes).map_err(bad)?));
            }
            Key::Lease => records::read_lease(bytes).map_err(bad)?,
            Key::ClusterState => records::read_cluster_state(bytes).map_err(bad)?,
            Key::FleetSize => records::read_fleet_size(bytes).map_err(bad)?,
            Key::Cursor(_) => records::read_cursor(bytes).map_err(bad)?,
            Key::Map => {
                if let Some(wanted) = parts::parse_manifest(bytes).map_err(bad)? {
                    return Ok(Decoded::Parts(wanted));
                }
                let (map, rest) = map::decode(bytes).map_err(bad)?;
                (Value::Map(Arc::new(map)), rest)
            }
        };
        let mut known = lock(&self.rest);
        if rest.is_empty() {
            known.remove(key);
        } else {
            known.insert(key.clone(), rest);
        }
        Ok(Decoded::Value(value))
    }
}

/// Checks the name of a partition: one or more names, parted by `:`.
pub fn check_partition(name: &str) -> Result<(), names::NameError> {
    name.split(':').try_for_each(names::check)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "codec_test.rs"]
mod tests;
