//! What the commands show, with the names they show it under.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A value whose fields are the columns of the same name, besides those that are given.
macro_rules! from_row {
    ($row:ident => $type:ident { $($column:ident),* ; $($field:ident: $value:expr),* $(,)? }) => {
        $type { $($column: $row.get(stringify!($column))?,)* $($field: $value,)* }
    };
}
pub(super) use from_row;

/// A provider's statistics, with the names of the design and what the broker says.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the names are the documentation: they are the design's")]
pub struct ProviderStats {
    pub id: String,
    pub state: String,
    pub provider_type: String,
    pub last_checkpoint: Option<String>,
    pub processed_count: i64,
    pub error_count: i64,
    pub permits_held: i64,
    pub created_at: String,
    pub updated_at: String,
    pub permits_wanted: i64,
    pub permits_revoked: i64,
    pub permits_why: Option<String>,
    pub pause_wish: bool,
    pub deadline: Option<String>,
    pub run_id: Option<String>,
    /// The outcome of the last run that ended.
    pub last_outcome: Option<String>,
    /// Whether a run ever completed, so that dependents may start.
    pub satisfied: bool,
    /// Satisfied by an earlier run, but the last one did not complete.
    pub stale: bool,
}

/// The macro machine's statistics, with the names of the design.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the names are the documentation: they are the design's")]
pub struct MacroStats {
    pub id: String,
    pub state: String,
    pub provider_count: i64,
    pub event_queue_len: i64,
    pub provider_states: BTreeMap<String, i64>,
    pub created_at: String,
    pub updated_at: String,
}

/// A run, as the summary shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct RunRow {
    pub provider: String,
    pub run_id: String,
    pub outcome: Option<String>,
    pub read: i64,
    pub stored: i64,
    pub unchanged: i64,
    pub dead_lettered: i64,
    pub skipped: i64,
    pub duration_ms: i64,
    /// Why it ended as it did.
    #[serde(skip)]
    pub reason: Option<String>,
    /// Why items were skipped, and how many each.
    #[serde(skip)]
    pub skips: BTreeMap<String, i64>,
}

/// A checkpoint: the five fields of the design.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[allow(missing_docs, reason = "the names are the documentation: they are the design's")]
pub struct Checkpoint {
    #[serde(rename = "URN")]
    pub urn: String,
    #[serde(rename = "ProviderID")]
    pub provider_id: String,
    pub processed_at: String,
    pub success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// An item nobody understood.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct DeadLetter {
    pub id: i64,
    pub provider: String,
    pub run_id: String,
    pub source: String,
    pub position: i64,
    pub reason: String,
    pub at: String,
    /// What was read; bytes that are no text show as U+FFFD here.
    pub raw: String,
    /// The very bytes in hexadecimal, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_hex: Option<String>,
}

/// An event, as it was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct EventRow {
    pub seq: i64,
    pub at: String,
    pub provider: String,
    pub run_id: Option<String>,
    pub kind: String,
    pub detail: String,
}

/// A step of a machine, as it was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct Step {
    #[serde(skip)]
    pub seq: i64,
    pub machine: String,
    pub from: String,
    pub to: String,
    pub cause: String,
}

/// An earlier version of a record.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct Version {
    pub version: i64,
    /// The fields the following version changed.
    pub changed: Value,
    pub title: String,
    pub text: String,
    pub modified: Option<String>,
    pub run_id: Option<String>,
}

/// A record at the other end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct LinkView {
    pub kind: String,
    pub urn: String,
    /// `None` where the store does not hold it.
    pub title: Option<String>,
}

/// All there is of one record.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct RecordView {
    pub urn: String,
    pub provider: String,
    pub subtype: String,
    pub title: String,
    pub text: String,
    pub published: Option<String>,
    pub modified: Option<String>,
    pub status: Option<String>,
    pub severity: Option<String>,
    pub details: Value,
    pub version: i64,
    pub source: String,
    pub position: i64,
    pub checksum: Option<String>,
    pub fetched_at: String,
    pub run_id: String,
    pub links: Vec<LinkView>,
    /// Who names it; at most 1,000.
    pub linked_from: Vec<LinkView>,
    pub versions: Vec<Version>,
    pub raw: String,
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct Hit {
    pub urn: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub subtype: String,
    pub title: String,
    pub severity: Option<String>,
    pub status: Option<String>,
    pub published: Option<String>,
    pub modified: Option<String>,
    /// The words where they stand, in brackets.
    pub excerpt: String,
    /// How well it fits; the best is the largest.
    pub score: f64,
}

/// What the store holds of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct Holding {
    pub provider: String,
    /// How many of each sort.
    pub records: BTreeMap<String, i64>,
    /// What else is counted, such as references.
    pub entries: BTreeMap<String, i64>,
    /// How many links of each kind begin there.
    pub links: BTreeMap<String, i64>,
}

/// A record on one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct Exported {
    pub urn: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub id: String,
    pub title: String,
    pub text: String,
    pub published: Option<String>,
    pub modified: Option<String>,
    pub status: Option<String>,
    pub severity: Option<String>,
    pub links: Vec<ExportedLink>,
    pub source: String,
}

/// A link of an exported record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct ExportedLink {
    pub to: String,
    pub kind: String,
}

/// A record that is new or another one since then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct Change {
    pub urn: String,
    pub title: String,
    /// `new` or `changed`.
    pub change: &'static str,
    /// Which fields, where it changed.
    pub fields: Vec<String>,
    /// The run that stored what it is now.
    pub run: String,
}
