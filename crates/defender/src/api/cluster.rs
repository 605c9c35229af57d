//! The fleet, as any worker sees it.

use std::collections::{BTreeMap, HashMap};

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use phalanx_cluster::CommandError;
use phalanx_cluster::backend::Entry;
use phalanx_service::{ApiError, ErrorBody};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Api;
use super::parameters::away;

/// A standby that was not heard for so many seconds is none.
const HEARD: f64 = 6.0;

/// The fleet.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cluster {
    /// What the leader is doing.
    state: Value,
    /// The version of the map.
    map_version: u64,
    lifecycle_state: Option<String>,
    /// How many workers there should be, by the map.
    fleet_size: Option<u32>,
    /// How many there should be by `phalanx scale`, which wins over the configurations of the workers; absent where nobody
    /// has said so.
    scaled_to: Option<u32>,
    /// What the map comes to.
    statistics: Value,
    /// The window that is open, if one is: what for, and how many seconds are left.
    window: Value,
    workers: Vec<Member>,
}

/// A worker or a standby.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Member {
    /// `defender-N`; absent for a standby.
    defender_id: Option<String>,
    pod_name: String,
    state: String,
    is_leader: bool,
    standby: bool,
    /// Chambers and weight by the map.
    chambers: u64,
    weight: u64,
    messages_processed: u64,
    applied_version: u64,
    /// How long ago its last sign of life was stored.
    heartbeat_age_seconds: f64,
}

/// Every worker and standby, the map and its statistics, and the window that is open. Any worker answers.
#[utoipa::path(
    get,
    path = "/api/v1/cluster",
    tag = "fleet",
    responses((status = 200, body = Cluster), (status = 503, body = ErrorBody))
)]
pub(crate) async fn cluster(State(api): State<Api>) -> Result<Json<Cluster>, ApiError> {
    let attached = api.attached()?;
    let beats = attached.stores.heartbeats.entries().await.map_err(away)?;
    let assignments = attached.stores.assignments.entries().await.map_err(away)?;
    let read = |key: &str| -> Value {
        let value = assignments.get(key).map(|entry| &entry.value);
        value.and_then(|value| serde_json::from_slice(value).ok()).unwrap_or_default()
    };
    // A large map lies in parts; what this worker knows of it says the same.
    let known = attached.defender.handle().status();
    let (current, state, scaled) = (read("current"), read("defender-state"), read("fleet-size"));
    let now = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or_default();
    let age = |entry: &Entry| now.saturating_sub(entry.stored_at) as f64 / 1e6;
    let load = |id: &str| -> (u64, u64) {
        let Some(map) = &known.map else { return (0, 0) };
        let own = map.assignments.values().filter(|assignment| assignment.owner.to_string() == id);
        own.fold((0, 0), |(chambers, weight), assignment| (chambers + 1, weight + assignment.weight.0))
    };
    let member = |(key, entry): (&String, &Entry)| {
        let beat: Value = serde_json::from_slice(&entry.value).ok()?;
        let text = |name: &str| beat[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| beat[name].as_u64().unwrap_or_default();
        let standby = !key.starts_with("defender-");
        let (chambers, weight) = if standby { (0, 0) } else { load(key) };
        Some(Member {
            defender_id: (!standby).then(|| key.clone()),
            pod_name: text("podName"),
            state: text("state"),
            is_leader: beat["isLeader"].as_bool().unwrap_or_default(),
            standby,
            chambers,
            weight,
            messages_processed: number("messagesProcessed"),
            applied_version: number("appliedVersion"),
            heartbeat_age_seconds: age(entry),
        })
    };
    let waits = |one: &Member| !one.standby || one.heartbeat_age_seconds < HEARD;
    let mut workers: Vec<Member> = newest(&beats).filter_map(member).filter(waits).collect();
    let number =
        |id: &Option<String>| id.as_ref().and_then(|id| id.strip_prefix("defender-")?.parse::<u32>().ok());
    workers.sort_by_key(|one| (one.standby, number(&one.defender_id), one.pod_name.clone()));
    Ok(Json(Cluster {
        state: state["state"].clone(),
        map_version: known.map_version.0,
        lifecycle_state: known.map.as_ref().map(|map| map.lifecycle.name().to_owned()),
        fleet_size: known.map.as_ref().and_then(|map| map.fleet_size),
        scaled_to: scaled["fleetSize"].as_u64().and_then(|size| u32::try_from(size).ok()),
        statistics: current["statistics"].clone(),
        window: window(&state["window"], assignments.get("defender-state").map(age)),
        workers,
    }))
}

/// What each process said last. What it said while it waited for its id, or under another one, stays for a while after.
fn newest(beats: &BTreeMap<String, Entry>) -> impl Iterator<Item = (&String, &Entry)> {
    let process = |entry: &Entry| -> Option<String> {
        let beat: Value = serde_json::from_slice(&entry.value).ok()?;
        beat["podUid"].as_str().map(str::to_owned)
    };
    let mut last = HashMap::<String, u64>::new();
    for entry in beats.values() {
        if let Some(process) = process(entry) {
            let at = last.entry(process).or_default();
            *at = entry.stored_at.max(*at);
        }
    }
    let is_newest = move |entry: &Entry| {
        process(entry).is_none_or(|process| last.get(&process) == Some(&entry.stored_at))
    };
    beats.iter().filter(move |(_, entry)| is_newest(entry))
}

/// The window as it stands now: it was told some time ago.
fn window(told: &Value, age: Option<f64>) -> Value {
    let Some(left) = told["leftMs"].as_f64() else { return Value::Null };
    let remaining = (left / 1e3 - age.unwrap_or_default()).max(0.0);
    json!({ "kind": told["kind"], "remainingSeconds": remaining })
}

/// How many workers there should be.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Scale {
    /// None leaves it to the configurations of the workers.
    fleet_size: Option<u32>,
}

/// Says for the whole fleet how many workers there should be.
#[utoipa::path(
    post,
    path = "/api/v1/scale",
    tag = "fleet",
    request_body = Scale,
    security(("token" = [])),
    responses(
        (status = 200, body = Value),
        (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn scale(State(api): State<Api>, Json(scale): Json<Scale>) -> Result<Json<Value>, ApiError> {
    let attached = api.attached()?;
    match attached.defender.handle().scale(scale.fleet_size).await {
        Ok(()) => Ok(Json(json!({ "fleetSize": scale.fleet_size }))),
        Err(error @ CommandError::FleetSize { .. }) => Err(ApiError::bad_request(error.to_string())),
        Err(error) => Err(ApiError::unavailable(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use phalanx_cluster::core::types::Revision;

    use super::*;

    #[test]
    fn a_process_is_shown_once_by_what_it_said_last() {
        let entry = |key: &str, uid: &str, stored_at: u64| {
            let value = json!({ "podUid": uid }).to_string().into();
            (key.to_owned(), Entry { key: key.to_owned(), value, revision: Revision(1), stored_at })
        };
        let beats = BTreeMap::from([
            // It waited, and has an id now.
            entry("standby-a", "a", 1),
            entry("defender-0", "a", 2),
            // It had an id, and waits now.
            entry("defender-1", "b", 3),
            entry("standby-b", "b", 4),
            entry("standby-c", "c", 5),
        ]);
        let shown: Vec<&String> = newest(&beats).map(|(key, _)| key).collect();
        assert_eq!(shown, ["defender-0", "standby-b", "standby-c"]);
    }
}
