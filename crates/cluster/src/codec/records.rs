//! The small values: claims, heartbeats, the lease, the cluster state, the fleet size, cursors.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use phalanx_fsm::State as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::keys::worker_id;
use super::{FORMAT, UnknownFields, bucket_key};
use crate::core::types::{
    Claim, ClusterState, Epoch, FencingToken, Heartbeat, Incarnation, Key, Lease, LogId, Pod, Sequence,
    Value, Version, WindowKind, WorkerId, WorkerIncarnation, WriteTimestamp,
};
use crate::core::{Cursor, Position, WorkerState};

type Read = Result<(Value, UnknownFields), String>;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimRecord {
    v: u32,
    defender_id: String,
    pod_uid: String,
    pod_name: String,
    /// When the id was claimed; kept by every renewal.
    claimed_at: String,
    last_heartbeat: String,
    ttl_seconds: u32,
    #[serde(default)]
    renewals: u64,
    #[serde(flatten)]
    rest: UnknownFields,
}

/// Where a claim's first time is remembered between its renewals.
const CLAIMED_AT: &str = "claimedAt";

pub(super) fn claim(key: &Key, claim: &Claim, now: &str, mut rest: UnknownFields) -> Bytes {
    let since = rest.remove(CLAIMED_AT).filter(|_| claim.renewals > 0);
    let record = ClaimRecord {
        v: FORMAT,
        defender_id: bucket_key(key).key,
        pod_uid: claim.pod.uid.to_string(),
        pod_name: claim.pod.name.to_string(),
        claimed_at: since
            .and_then(|since| since.as_str().map(str::to_owned))
            .unwrap_or_else(|| now.to_owned()),
        last_heartbeat: now.to_owned(),
        ttl_seconds: 30,
        renewals: claim.renewals,
        rest,
    };
    bytes(&record)
}

pub(super) fn read_claim(bytes: &[u8]) -> Read {
    let record: ClaimRecord = parse(bytes)?;
    let mut rest = record.rest;
    rest.insert(CLAIMED_AT.to_owned(), record.claimed_at.into());
    let pod = Pod { name: record.pod_name.into(), uid: record.pod_uid.into() };
    Ok((Value::Claim(Claim { pod, renewals: record.renewals }), rest))
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeartbeatRecord {
    v: u32,
    /// None for a standby.
    defender_id: Option<String>,
    pod_name: String,
    pod_uid: String,
    #[serde(default)]
    incarnation: u64,
    serial: u64,
    timestamp: String,
    is_leader: bool,
    state: String,
    assigned_chambers: usize,
    messages_processed: u64,
    map_version: u64,
    applied_version: u64,
    cursor_version: u64,
    #[serde(default)]
    fleet_size: Option<u32>,
}

/// What a farewell shows as its state.
const LEFT: &str = "LEFT";

pub(super) fn heartbeat(beat: &Heartbeat, now: &str) -> Bytes {
    bytes(&HeartbeatRecord {
        v: FORMAT,
        defender_id: beat.worker.map(|holder| holder.id.to_string()),
        pod_name: beat.pod.name.to_string(),
        pod_uid: beat.pod.uid.to_string(),
        incarnation: beat.worker.map_or(0, |holder| holder.incarnation.0),
        serial: beat.serial,
        timestamp: now.to_owned(),
        is_leader: beat.is_leader,
        state: if beat.left { LEFT } else { beat.state.name() }.to_owned(),
        assigned_chambers: beat.assigned,
        messages_processed: beat.processed,
        map_version: beat.map_version.0,
        applied_version: beat.applied_version.0,
        cursor_version: beat.cursor_version.0,
        fleet_size: beat.fleet_size,
    })
}

pub(super) fn read_heartbeat(bytes: &[u8]) -> Result<Value, String> {
    let record: HeartbeatRecord = parse(bytes)?;
    let holder = match &record.defender_id {
        Some(id) => Some(WorkerIncarnation { id: id_of(id)?, incarnation: Incarnation(record.incarnation) }),
        None => None,
    };
    let left = record.state == LEFT;
    let state = if left { WorkerState::Shutdown } else { state_of(&record.state)? };
    Ok(Value::Heartbeat(Arc::new(Heartbeat {
        pod: Pod { name: record.pod_name.into(), uid: record.pod_uid.into() },
        worker: holder,
        serial: record.serial,
        state,
        left,
        is_leader: record.is_leader,
        map_version: Version(record.map_version),
        applied_version: Version(record.applied_version),
        cursor_version: Version(record.cursor_version),
        assigned: record.assigned_chambers,
        processed: record.messages_processed,
        fleet_size: record.fleet_size,
    })))
}

#[derive(Serialize, Deserialize)]
struct HolderRecord {
    id: String,
    incarnation: u64,
}

impl HolderRecord {
    fn of(holder: WorkerIncarnation) -> Self {
        Self { id: holder.id.to_string(), incarnation: holder.incarnation.0 }
    }

    fn read(&self) -> Result<WorkerIncarnation, String> {
        Ok(WorkerIncarnation { id: id_of(&self.id)?, incarnation: Incarnation(self.incarnation) })
    }
}

/// A lease of any election over a key: whoever holds it, in the words of its user.
#[derive(Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    pub(crate) v: u32,
    /// None after it was given back: the epoch stays.
    pub(crate) holder: Option<String>,
    pub(crate) epoch: u64,
    #[serde(default)]
    pub(crate) renewals: u64,
    #[serde(flatten)]
    pub(crate) rest: UnknownFields,
}

impl LeaseRecord {
    pub(crate) fn bytes(&self) -> Bytes {
        bytes(self)
    }
}

pub(super) fn lease(lease: &Lease, rest: UnknownFields) -> Bytes {
    let Lease { holder, epoch, renewals } = lease;
    let holder = Some(format_incarnation(*holder));
    LeaseRecord { v: FORMAT, holder, epoch: epoch.0, renewals: *renewals, rest }.bytes()
}

pub(super) fn read_lease(bytes: &[u8]) -> Read {
    let LeaseRecord { holder, epoch, renewals, rest, .. } = parse(bytes)?;
    let holder = parse_incarnation(&holder.ok_or("nobody holds it")?)?;
    Ok((Value::Lease(Lease { holder, epoch: Epoch(epoch), renewals }), rest))
}

/// A holder as one word: `defender-5.1763301234000000`.
pub fn format_incarnation(holder: WorkerIncarnation) -> String {
    format!("{}.{}", holder.id, holder.incarnation.0)
}

/// Parses the text of [`format_incarnation`].
pub fn parse_incarnation(text: &str) -> Result<WorkerIncarnation, String> {
    let bad = || format!("{text:?} is not the id of a worker and its incarnation, parted by a dot");
    let (id, incarnation) = text.rsplit_once('.').ok_or_else(bad)?;
    let incarnation = incarnation.parse().map_err(|_| bad())?;
    Ok(WorkerIncarnation { id: worker_id(id).ok_or_else(bad)?, incarnation: Incarnation(incarnation) })
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateRecord {
    v: u32,
    state: String,
    leader_epoch: u64,
    #[serde(default)]
    map_version: u64,
    serial: u64,
    timestamp: String,
    window: Option<WindowRecord>,
    /// What is left of each grace, in milliseconds.
    graces: BTreeMap<String, u64>,
    #[serde(flatten)]
    rest: UnknownFields,
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

pub(super) fn cluster_state(state: &ClusterState, now: &str, rest: UnknownFields) -> Bytes {
    let window = state.window.map(|(kind, left)| {
        let name = WINDOWS.iter().find(|(known, _)| *known == kind).map_or("", |(_, name)| name);
        WindowRecord { kind: name.to_owned(), left_ms: millis(left) }
    });
    bytes(&StateRecord {
        v: FORMAT,
        state: state.state.name().to_owned(),
        leader_epoch: state.epoch.0,
        map_version: state.version.0,
        serial: state.serial,
        timestamp: now.to_owned(),
        window,
        graces: state.grace_periods.iter().map(|(id, left)| (id.to_string(), millis(*left))).collect(),
        rest,
    })
}

pub(super) fn read_cluster_state(bytes: &[u8]) -> Read {
    let record: StateRecord = parse(bytes)?;
    let window = match &record.window {
        None => None,
        Some(WindowRecord { kind, left_ms }) => {
            let known = WINDOWS.iter().find(|(_, name)| name == kind);
            let (kind, _) = known.ok_or_else(|| format!("{kind:?} is no window"))?;
            Some((*kind, Duration::from_millis(*left_ms)))
        }
    };
    let graces = record
        .graces
        .iter()
        .map(|(id, left)| Ok((id_of(id)?, Duration::from_millis(*left))))
        .collect::<Result<_, String>>()?;
    let state = ClusterState {
        state: state_of(&record.state)?,
        epoch: Epoch(record.leader_epoch),
        version: Version(record.map_version),
        serial: record.serial,
        window,
        grace_periods: graces,
    };
    Ok((Value::ClusterState(Arc::new(state)), record.rest))
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SizeRecord {
    v: u32,
    fleet_size: u32,
    #[serde(flatten)]
    rest: UnknownFields,
}

pub(super) fn fleet_size(fleet_size: u32, rest: UnknownFields) -> Bytes {
    bytes(&SizeRecord { v: FORMAT, fleet_size, rest })
}

pub(super) fn read_fleet_size(bytes: &[u8]) -> Read {
    let record: SizeRecord = parse(bytes)?;
    if record.fleet_size == 0 {
        return Err("the fleet size is 0; it must be 1 or more".to_owned());
    }
    Ok((Value::FleetSize(record.fleet_size), record.rest))
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CursorRecord {
    v: u32,
    generation: u64,
    sequence: u64,
    context_id: String,
    stream: u64,
    stamp: u64,
    holder: HolderRecord,
    version: u64,
    take: u64,
    failures: u32,
    deaths: u32,
    #[serde(default)]
    solo: bool,
    #[serde(default)]
    dead: Option<String>,
    #[serde(default)]
    judged: Option<u64>,
    clean_to: u64,
    #[serde(default)]
    base: Option<PositionRecord>,
    /// The incarnation that released the cursor. A worker that does not know this field keeps it when it takes the cursor
    /// over, so it counts only if it names the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    released: Option<u64>,
    #[serde(flatten)]
    rest: UnknownFields,
}

#[derive(Serialize, Deserialize)]
struct PositionRecord {
    generation: u64,
    sequence: u64,
}

pub(super) fn cursor(cursor: &Cursor, rest: UnknownFields) -> Bytes {
    bytes(&CursorRecord {
        v: FORMAT,
        generation: cursor.position.generation,
        sequence: cursor.position.sequence.0,
        context_id: cursor.message_id.as_deref().unwrap_or_default().to_owned(),
        stream: cursor.log_id.map_or(0, |log| log.0),
        stamp: cursor.write_timestamp.0,
        holder: HolderRecord::of(cursor.owner),
        version: cursor.version.0,
        take: cursor.fencing_token.0,
        failures: cursor.failures,
        deaths: cursor.worker_crashes,
        solo: cursor.isolated,
        dead: cursor.dead_letter_reason.as_deref().map(str::to_owned),
        judged: cursor.counted_sequence.map(|sequence| sequence.0),
        clean_to: cursor.watermark.0,
        base: cursor
            .state_position
            .map(|Position { generation, sequence }| PositionRecord { generation, sequence: sequence.0 }),
        released: cursor.released.then_some(cursor.owner.incarnation.0),
        rest,
    })
}

pub(super) fn read_cursor(bytes: &[u8]) -> Read {
    let record: CursorRecord = parse(bytes)?;
    let released = record.released == Some(record.holder.incarnation);
    let cursor = Cursor {
        position: Position { generation: record.generation, sequence: Sequence(record.sequence) },
        state_position: record.base.map(|PositionRecord { generation, sequence }| Position {
            generation,
            sequence: Sequence(sequence),
        }),
        message_id: Some(record.context_id).filter(|id| !id.is_empty()).map(Into::into),
        log_id: Some(LogId(record.stream)).filter(|log| *log != LogId(0)),
        write_timestamp: WriteTimestamp(record.stamp),
        owner: record.holder.read()?,
        version: Version(record.version),
        fencing_token: FencingToken(record.take),
        failures: record.failures,
        worker_crashes: record.deaths,
        isolated: record.solo,
        dead_letter_reason: record.dead.map(Into::into),
        counted_sequence: record.judged.map(Sequence),
        watermark: Sequence(record.clean_to),
        released,
    };
    Ok((Value::Cursor(Arc::new(cursor)), record.rest))
}

pub(super) fn id_of(text: &str) -> Result<WorkerId, String> {
    worker_id(text).ok_or_else(|| format!("{text:?} is no id; ids are defender-0, defender-1, …"))
}

fn state_of(name: &str) -> Result<WorkerState, String> {
    WorkerState::from_name(name).ok_or_else(|| format!("{name:?} is no state of a worker"))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|e| e.to_string())
}

fn bytes(record: &impl Serialize) -> Bytes {
    // Strings and numbers always become JSON.
    serde_json::to_vec(record).unwrap_or_default().into()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
