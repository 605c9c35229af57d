//! The small values: claims, heartbeats, the lease, the cluster state, the fleet size, cursors.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use phalanx_fsm::State as _;
use serde::{Deserialize, Serialize};

use super::object::{ObjectReader, ObjectWriter};
use super::{FORMAT, UnknownFields};
use crate::core::types::{
    Claim, ClusterState, Epoch, FencingToken, Heartbeat, Incarnation, Key, Lease, LogId, Pod, Sequence,
    Value, Version, WindowKind, WorkerIncarnation, WriteTimestamp,
};
use crate::core::{Cursor, Position, WorkerState};
use crate::names::Names;

type Read = Result<(Value, UnknownFields), String>;

/// The time of the first claim, which every renewal keeps.
const CLAIMED_AT: &str = "claimedAt";

pub(super) fn claim(names: &Names, key: &Key, claim: &Claim, now: &str, mut rest: UnknownFields) -> Bytes {
    let since = rest.remove(CLAIMED_AT).filter(|_| claim.renewals > 0);
    let since = since.as_ref().and_then(|since| since.as_str()).unwrap_or(now);
    ObjectWriter::new(names)
        .field("v", &FORMAT)
        .field("workerId", &names.bucket_key(key).key)
        .field("podUid", &claim.pod.uid)
        .field("podName", &claim.pod.name)
        .field(CLAIMED_AT, since)
        .field("lastHeartbeat", now)
        .field("ttlSeconds", &30)
        .field("renewals", &claim.renewals)
        .unknown(&rest)
        .finish()
}

pub(super) fn read_claim(names: &Names, bytes: &[u8]) -> Read {
    let mut record = ObjectReader::parse(names, bytes)?;
    let claimed_at: String = record.required(CLAIMED_AT)?;
    let pod = Pod {
        name: record.required::<String>("podName")?.into(),
        uid: record.required::<String>("podUid")?.into(),
    };
    let renewals = record.or_default("renewals")?;
    record.skip(&["v", "workerId", "lastHeartbeat", "ttlSeconds"]);
    let mut rest = record.unknown()?;
    rest.insert(CLAIMED_AT.to_owned(), claimed_at.into());
    Ok((Value::Claim(Claim { pod, renewals }), rest))
}

/// The state that a leave record shows.
const LEFT: &str = "LEFT";

pub(super) fn heartbeat(names: &Names, beat: &Heartbeat, now: &str) -> Bytes {
    ObjectWriter::new(names)
        .field("v", &FORMAT)
        .field("workerId", &beat.worker.map(|worker| names.worker(worker.id)))
        .field("podName", &beat.pod.name)
        .field("podUid", &beat.pod.uid)
        .field("incarnation", &beat.worker.map_or(0, |worker| worker.incarnation.0))
        .field("serial", &beat.serial)
        .field("timestamp", now)
        .field("isLeader", &beat.is_leader)
        .field("state", if beat.left { LEFT } else { beat.state.name() })
        .field("assignedPartitions", &beat.assigned)
        .field("messagesProcessed", &beat.processed)
        .field("mapVersion", &beat.map_version.0)
        .field("appliedVersion", &beat.applied_version.0)
        .field("cursorVersion", &beat.cursor_version.0)
        .field("fleetSize", &beat.fleet_size)
        .finish()
}

pub(super) fn read_heartbeat(names: &Names, bytes: &[u8]) -> Result<Value, String> {
    let mut record = ObjectReader::parse(names, bytes)?;
    let incarnation = Incarnation(record.or_default("incarnation")?);
    let worker = match record.optional::<String>("workerId")? {
        Some(id) => Some(WorkerIncarnation { id: names.require_worker(&id)?, incarnation }),
        None => None,
    };
    let state: String = record.required("state")?;
    let left = state == LEFT;
    Ok(Value::Heartbeat(Arc::new(Heartbeat {
        pod: Pod {
            name: record.required::<String>("podName")?.into(),
            uid: record.required::<String>("podUid")?.into(),
        },
        worker,
        serial: record.required("serial")?,
        state: if left { WorkerState::Shutdown } else { state_of(&state)? },
        left,
        is_leader: record.required("isLeader")?,
        map_version: Version(record.required("mapVersion")?),
        applied_version: Version(record.required("appliedVersion")?),
        cursor_version: Version(record.required("cursorVersion")?),
        assigned: record.required("assignedPartitions")?,
        processed: record.required("messagesProcessed")?,
        fleet_size: record.optional("fleetSize")?,
    })))
}

#[derive(Serialize, Deserialize)]
struct OwnerRecord {
    id: String,
    incarnation: u64,
}

/// A lease of any election over a key.
#[derive(Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    pub(crate) v: u32,
    /// None after the holder has resigned: the epoch stays.
    pub(crate) holder: Option<String>,
    pub(crate) epoch: u64,
    #[serde(default)]
    pub(crate) renewals: u64,
    #[serde(flatten)]
    pub(crate) rest: UnknownFields,
}

impl LeaseRecord {
    pub(crate) fn bytes(&self) -> Bytes {
        serde_json::to_vec(self).expect("strings and numbers always become JSON").into()
    }
}

pub(super) fn lease(names: &Names, lease: &Lease, rest: UnknownFields) -> Bytes {
    let Lease { holder, epoch, renewals } = lease;
    let holder = Some(names.format_incarnation(*holder));
    LeaseRecord { v: FORMAT, holder, epoch: epoch.0, renewals: *renewals, rest }.bytes()
}

pub(super) fn read_lease(names: &Names, bytes: &[u8]) -> Read {
    let LeaseRecord { holder, epoch, renewals, rest, .. } =
        serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    let holder = names.parse_incarnation(&holder.ok_or("nobody holds it")?)?;
    Ok((Value::Lease(Lease { holder, epoch: Epoch(epoch), renewals }), rest))
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WindowRecord {
    kind: String,
    left_ms: u64,
}

const WINDOWS: [(WindowKind, &str); 3] = [
    (WindowKind::ColdStart, "cold_start"),
    (WindowKind::Restart, "restart"),
    (WindowKind::PlannedScale, "planned_scale"),
];

/// Returns the stored name of a window.
pub(crate) fn window_name(kind: WindowKind) -> &'static str {
    WINDOWS.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name).expect("every window has a name")
}

pub(super) fn cluster_state(names: &Names, state: &ClusterState, now: &str, rest: &UnknownFields) -> Bytes {
    let window = state
        .window
        .map(|(kind, left)| WindowRecord { kind: window_name(kind).to_owned(), left_ms: millis(left) });
    let grace_periods: BTreeMap<String, u64> =
        state.grace_periods.iter().map(|(id, left)| (names.worker(*id), millis(*left))).collect();
    ObjectWriter::new(names)
        .field("v", &FORMAT)
        .field("state", state.state.name())
        .field("leaderEpoch", &state.epoch.0)
        .field("mapVersion", &state.version.0)
        .field("serial", &state.serial)
        .field("timestamp", now)
        .field("window", &window)
        .field("graces", &grace_periods)
        .unknown(rest)
        .finish()
}

pub(super) fn read_cluster_state(names: &Names, bytes: &[u8]) -> Read {
    let mut record = ObjectReader::parse(names, bytes)?;
    let window = match record.optional::<WindowRecord>("window")? {
        None => None,
        Some(WindowRecord { kind, left_ms }) => {
            let known = WINDOWS.iter().find(|(_, name)| *name == kind);
            let (kind, _) = known.ok_or_else(|| format!("unknown window {kind:?}"))?;
            Some((*kind, Duration::from_millis(left_ms)))
        }
    };
    let grace_periods = record
        .required::<BTreeMap<String, u64>>("graces")?
        .iter()
        .map(|(id, left)| Ok((names.require_worker(id)?, Duration::from_millis(*left))))
        .collect::<Result<_, String>>()?;
    let state = ClusterState {
        state: state_of(&record.required::<String>("state")?)?,
        epoch: Epoch(record.required("leaderEpoch")?),
        version: Version(record.or_default("mapVersion")?),
        serial: record.required("serial")?,
        window,
        grace_periods,
    };
    record.skip(&["v", "timestamp"]);
    Ok((Value::ClusterState(Arc::new(state)), record.unknown()?))
}

pub(super) fn fleet_size(names: &Names, fleet_size: u32, rest: &UnknownFields) -> Bytes {
    ObjectWriter::new(names).field("v", &FORMAT).field("fleetSize", &fleet_size).unknown(rest).finish()
}

pub(super) fn read_fleet_size(names: &Names, bytes: &[u8]) -> Read {
    let mut record = ObjectReader::parse(names, bytes)?;
    let fleet_size: u32 = record.required("fleetSize")?;
    if fleet_size == 0 {
        return Err("fleetSize is 0; it must be 1 or more".to_owned());
    }
    record.skip(&["v"]);
    Ok((Value::FleetSize(fleet_size), record.unknown()?))
}

#[derive(Serialize, Deserialize)]
struct PositionRecord {
    generation: u64,
    sequence: u64,
}

pub(super) fn cursor(names: &Names, cursor: &Cursor, rest: &UnknownFields) -> Bytes {
    let owner = OwnerRecord { id: names.worker(cursor.owner.id), incarnation: cursor.owner.incarnation.0 };
    let base = cursor
        .state_position
        .map(|Position { generation, sequence }| PositionRecord { generation, sequence: sequence.0 });
    let record = ObjectWriter::new(names)
        .field("v", &FORMAT)
        .field("generation", &cursor.position.generation)
        .field("sequence", &cursor.position.sequence.0)
        .field("messageId", cursor.message_id.as_deref().unwrap_or_default())
        .field("stream", &cursor.log_id.map_or(0, |log| log.0))
        .field("stamp", &cursor.write_timestamp.0)
        .field("holder", &owner)
        .field("version", &cursor.version.0)
        .field("take", &cursor.fencing_token.0)
        .field("failures", &cursor.failures)
        .field("deaths", &cursor.worker_crashes)
        .field("solo", &cursor.isolated)
        .field("dead", &cursor.dead_letter_reason)
        .field("judged", &cursor.counted_sequence.map(|sequence| sequence.0))
        .field("cleanTo", &cursor.watermark.0)
        .field("base", &base);
    let record = match cursor.released {
        true => record.field("released", &cursor.owner.incarnation.0),
        false => record,
    };
    record.unknown(rest).finish()
}

pub(super) fn read_cursor(names: &Names, bytes: &[u8]) -> Read {
    let mut record = ObjectReader::parse(names, bytes)?;
    let holder: OwnerRecord = record.required("holder")?;
    let owner = WorkerIncarnation {
        id: names.require_worker(&holder.id)?,
        incarnation: Incarnation(holder.incarnation),
    };
    let cursor = Cursor {
        position: Position {
            generation: record.required("generation")?,
            sequence: Sequence(record.required("sequence")?),
        },
        state_position: record.optional("base")?.map(|PositionRecord { generation, sequence }| Position {
            generation,
            sequence: Sequence(sequence),
        }),
        message_id: Some(record.required::<String>("messageId")?).filter(|id| !id.is_empty()).map(Into::into),
        log_id: Some(LogId(record.required("stream")?)).filter(|log| *log != LogId(0)),
        write_timestamp: WriteTimestamp(record.required("stamp")?),
        owner,
        version: Version(record.required("version")?),
        fencing_token: FencingToken(record.required("take")?),
        failures: record.required("failures")?,
        worker_crashes: record.required("deaths")?,
        isolated: record.or_default("solo")?,
        dead_letter_reason: record.optional::<String>("dead")?.map(Into::into),
        counted_sequence: record.optional("judged")?.map(Sequence),
        watermark: Sequence(record.required("cleanTo")?),
        // The incarnation that released the cursor. A worker that does not know this field keeps it when it takes the
        // cursor over, so it counts only if it names the owner.
        released: record.optional("released")? == Some(holder.incarnation),
    };
    record.skip(&["v"]);
    Ok((Value::Cursor(Arc::new(cursor)), record.unknown()?))
}

fn state_of(name: &str) -> Result<WorkerState, String> {
    WorkerState::from_name(name).ok_or_else(|| format!("unknown worker state {name:?}"))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
