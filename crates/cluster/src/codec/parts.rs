//! A map that is too large for one value: compressed parts under keys of their own, and `current` names them.
//!
//! The parts are written first, under names that nobody else uses; whoever reads `current` finds them all, or keeps the map
//! it has and tries again.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh64::xxh64;

use super::FORMAT;

/// A map larger than this lies in parts, none larger than this.
pub const MAX_MAP_BYTES: usize = 512 * 1024;
/// What the keys of parts begin with.
const PREFIX: &str = "map.";
/// More than any map has: what claims to be larger is refused before room is made for it.
const LARGEST_JSON: usize = 1 << 30;
const LEVEL: i32 = 3;

/// A map in parts, to be written in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitMap {
    /// Keys and values of the parts.
    pub parts: Vec<(String, Bytes)>,
    /// What `current` says.
    pub current: Bytes,
}

/// Which parts make a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartManifest {
    v: u32,
    /// The keys, in order.
    pub parts: Vec<String>,
    /// The size of the map as JSON.
    bytes: usize,
    /// A check sum of that JSON.
    xxh64: String,
}

/// Whether a key is that of a part.
pub fn is_part(key: &str) -> bool {
    key.starts_with(PREFIX)
}

/// Cuts a map into parts if it is too large for one value. `unique` is in the key of no other map.
pub fn split(json: &Bytes, unique: &str) -> Option<SplitMap> {
    if json.len() <= MAX_MAP_BYTES {
        return None;
    }
    // Compressing into memory cannot fail but for a level that does not exist.
    let packed: Bytes = zstd::bulk::compress(json, LEVEL).unwrap_or_else(|_| json.to_vec()).into();
    let chunks = packed.chunks(MAX_MAP_BYTES).map(Bytes::copy_from_slice);
    let parts: Vec<(String, Bytes)> =
        chunks.enumerate().map(|(n, part)| (format!("{PREFIX}{unique}.{n}"), part)).collect();
    let wanted = PartManifest {
        v: FORMAT,
        parts: parts.iter().map(|(key, _)| key.clone()).collect(),
        bytes: json.len(),
        xxh64: format!("{:016x}", xxh64(json, 0)),
    };
    let current = serde_json::to_vec(&wanted).unwrap_or_default().into();
    Some(SplitMap { parts, current })
}

/// The parts that a value of `current` names, if it names any.
pub(super) fn parse_manifest(bytes: &[u8]) -> Result<Option<PartManifest>, String> {
    if bytes.len() > MAX_MAP_BYTES || !bytes.windows(7).take(64).any(|window| window == b"\"parts\"") {
        return Ok(None);
    }
    serde_json::from_slice(bytes).map(Some).map_err(|e| e.to_string())
}

/// Puts the parts together again. What does not fit is an error that says what.
pub fn join(wanted: &PartManifest, parts: &[Bytes]) -> Result<Bytes, String> {
    if wanted.bytes > LARGEST_JSON {
        return Err(format!("it says it has {} bytes; at most {LARGEST_JSON} are read", wanted.bytes));
    }
    let packed = parts.concat();
    let json = zstd::bulk::decompress(&packed, wanted.bytes).map_err(|e| format!("its parts: {e}"))?;
    let sum = format!("{:016x}", xxh64(&json, 0));
    if json.len() != wanted.bytes || sum != wanted.xxh64 {
        let (found, expected) = (json.len(), wanted.bytes);
        return Err(format!(
            "its parts make {found} bytes with sum {sum}, not {expected} with {}",
            wanted.xxh64
        ));
    }
    Ok(json.into())
}
