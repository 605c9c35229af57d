//! The stored form of values: JSON with the field names of the group.
//!
//! Every value carries a format number `v`. A rolling update mixes versions, so a worker that rewrites a value keeps the
//! fields that it does not know: [`Codec`] stores them by key. A value that cannot be read is an error that names the key
//! and the reason; it never counts as absent.

mod map;
mod object;
mod parts;
mod records;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Map;
use thiserror::Error;

pub(crate) use self::map::{Load, group_of, loads};
pub use self::map::{MapMetadata, MapStatistics};
pub use self::parts::{MAX_MAP_BYTES, PartManifest, SplitMap, is_part, join, split};
pub(crate) use self::records::{LeaseRecord, window_name};
use crate::core::types::{AssignmentMap, Key, Value, WorkerId};
use crate::names::{self, Names};

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

/// A decoded value: the value itself, or the names of its parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// A value.
    Value(Value),
    /// A map that lies in parts.
    Parts(PartManifest),
}

/// Unknown fields of a value.
type UnknownFields = Map<String, serde_json::Value>;

/// Writes and reads the values of a group, and keeps the fields that it does not know.
#[derive(Debug)]
pub struct Codec {
    names: Names,
    rest: Mutex<BTreeMap<Key, UnknownFields>>,
    /// The pod of each worker id, from its heartbeat: the map names pods.
    pods: Mutex<BTreeMap<WorkerId, Arc<str>>>,
}

impl Codec {
    /// Returns a codec for the values of one group.
    pub fn new(names: Names) -> Self {
        Self { names, rest: Mutex::default(), pods: Mutex::default() }
    }

    /// Returns the names of the group.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the stored form of a value. `now` is a wall-clock time for users to read; nothing is decided by it.
    pub fn encode(&self, key: &Key, value: &Value, now: &str) -> Bytes {
        let mut rest = lock(&self.rest).get(key).cloned().unwrap_or_default();
        let names = &self.names;
        match value {
            Value::Claim(claim) => records::claim(names, key, claim, now, rest),
            Value::Heartbeat(beat) => records::heartbeat(names, beat, now),
            Value::Lease(lease) => records::lease(names, lease, rest),
            Value::ClusterState(state) => records::cluster_state(names, state, now, &rest),
            Value::FleetSize(size) => records::fleet_size(names, *size, &rest),
            Value::Cursor(cursor) => records::cursor(names, cursor, &rest),
            Value::Map(map) => {
                let pods = lock(&self.pods);
                let facts = MapMetadata { now, pods: &pods, calculation: None };
                map::encode(names, map, &facts, &mut rest)
            }
        }
    }

    /// Returns the stored form of a map that was just calculated.
    pub fn encode_map(&self, map: &AssignmentMap, now: &str, calculation: std::time::Duration) -> Bytes {
        let mut rest = lock(&self.rest).get(&Key::Map).cloned().unwrap_or_default();
        let pods = lock(&self.pods);
        let facts = MapMetadata { now, pods: &pods, calculation: Some(calculation) };
        map::encode(&self.names, map, &facts, &mut rest)
    }

    /// Reads a value, and keeps the fields that it does not know.
    pub fn decode(&self, key: &Key, bytes: &[u8]) -> Result<Decoded, DecodeError> {
        let names = &self.names;
        let bad = |reason: String| DecodeError { key: names.bucket_key(key).to_string(), reason };
        let (value, rest) = match key {
            Key::Claim(_) => records::read_claim(names, bytes).map_err(bad)?,
            Key::Heartbeat(id) => {
                let beat = records::read_heartbeat(names, bytes).map_err(bad)?;
                if let Value::Heartbeat(beat) = &beat {
                    lock(&self.pods).insert(*id, beat.pod.name.clone());
                }
                return Ok(Decoded::Value(beat));
            }
            Key::StandbyHeartbeat(_) => {
                return Ok(Decoded::Value(records::read_heartbeat(names, bytes).map_err(bad)?));
            }
            Key::Lease => records::read_lease(names, bytes).map_err(bad)?,
            Key::ClusterState => records::read_cluster_state(names, bytes).map_err(bad)?,
            Key::FleetSize => records::read_fleet_size(names, bytes).map_err(bad)?,
            Key::Cursor(_) => records::read_cursor(names, bytes).map_err(bad)?,
            Key::Map => {
                if let Some(wanted) = parts::parse_manifest(bytes).map_err(bad)? {
                    return Ok(Decoded::Parts(wanted));
                }
                let (map, rest) = map::decode(names, bytes).map_err(bad)?;
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

impl Codec {
    /// Reads a map from its parts.
    pub fn assemble_map(&self, wanted: &PartManifest, parts: &[Bytes]) -> Result<Arc<AssignmentMap>, String> {
        let json = join(wanted, parts)?;
        match self.decode(&Key::Map, &json).map_err(|e| e.to_string())? {
            Decoded::Value(Value::Map(map)) => Ok(map),
            Decoded::Value(_) => Err("it is not a map".to_owned()),
            Decoded::Parts(_) => Err("its parts name parts".to_owned()),
        }
    }

    /// Returns the duration of the calculation of the last map that was read.
    pub(crate) fn calculation_ms(&self) -> f64 {
        lock(&self.rest).get(&Key::Map).map_or(0.0, map::calculation_ms)
    }
}

/// Checks the name of a partition: one or more names, separated by `:`.
pub fn check_partition(name: &str) -> Result<(), names::NameError> {
    name.split(':').try_for_each(names::check)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "codec_test.rs"]
mod tests;
