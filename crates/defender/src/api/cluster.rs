//! The fleet, as any worker sees it.

use axum::Json;
use axum::extract::State;
use phalanx_cluster::codec::MapStatistics;
use phalanx_cluster::{CommandError, FleetView};
use phalanx_fsm::State as _;
use phalanx_service::{ApiError, ErrorBody};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Api;
use super::parameters::away;

/// The fleet.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cluster {
    /// The cluster state that the leader shows.
    state: Value,
    /// The version of the map.
    map_version: u64,
    lifecycle_state: Option<String>,
    /// The fleet size in force, by the map.
    fleet_size: Option<u32>,
    /// The fleet size that `phalanx scale` commanded; it takes precedence over the configuration of the workers. Absent if
    /// there is none.
    scaled_to: Option<u32>,
    /// Statistics of the map.
    statistics: Value,
    /// The open window, if there is one: its kind, and the seconds that remain.
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
    /// Seconds since its last heartbeat was stored.
    heartbeat_age_seconds: f64,
}

impl From<phalanx_cluster::Member> for Member {
    fn from(member: phalanx_cluster::Member) -> Self {
        Self {
            standby: member.id.is_none(),
            defender_id: member.name,
            pod_name: member.pod_name.to_string(),
            state: if member.has_left { "LEFT".to_owned() } else { member.state.name().to_owned() },
            is_leader: member.is_leader,
            chambers: member.partitions as u64,
            weight: member.weight,
            messages_processed: member.processed,
            applied_version: member.applied_version,
            heartbeat_age_seconds: member.heartbeat_age.as_secs_f64(),
        }
    }
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
    let fleet = FleetView::read(&attached.stores).await.map_err(away)?;
    let map = fleet.map.as_deref();
    Ok(Json(Cluster {
        state: fleet.state.map_or(Value::Null, |state| state.name().into()),
        map_version: map.map_or(0, |map| map.version.0),
        lifecycle_state: map.map(|map| map.lifecycle.name().to_owned()),
        fleet_size: map.and_then(|map| map.fleet_size),
        scaled_to: fleet.scaled_to,
        statistics: fleet.statistics.as_ref().map_or(Value::Null, statistics),
        window: fleet.window.map_or(
            Value::Null,
            |window| json!({ "kind": window.name(), "remainingSeconds": window.remaining.as_secs_f64() }),
        ),
        workers: fleet.members.into_iter().map(Member::from).collect(),
    }))
}

/// Returns the statistics under the names of the requirements.
fn statistics(of: &MapStatistics) -> Value {
    json!({
        "minChambersPerDefender": of.min_partitions,
        "maxChambersPerDefender": of.max_partitions,
        "avgChambersPerDefender": of.mean_partitions,
        "minWeightPerDefender": of.min_weight,
        "maxWeightPerDefender": of.max_weight,
        "avgWeightPerDefender": of.mean_weight,
        "weightVariancePercent": of.deviation_percent,
        "calculationDurationMs": of.calculation_ms,
        "chambersMoved": of.moved,
        "movedWeight": of.moved_weight,
        "lowerBoundWeight": of.lower_bound_weight,
        "ratioToLowerBound": of.ratio_to_lower_bound,
        "minOverMean": of.min_over_mean,
        "maxOverMean": of.max_over_mean,
    })
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
