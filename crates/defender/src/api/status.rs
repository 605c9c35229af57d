//! This worker.

use std::time::Instant;

use axum::Json;
use axum::extract::{Query, State};
use phalanx_cluster::Role;
use phalanx_cluster::core::types::WorkerId;
use phalanx_fsm::State as _;
use phalanx_service::{ApiError, ErrorBody};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use crate::names::names;
use crate::record::Chamber;

/// This worker.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// `defender-N`; absent while it holds no id.
    defender_id: Option<String>,
    pod_name: String,
    state: String,
    is_leader: bool,
    assigned_chambers: usize,
    /// Hits of the last five minutes, 0 to 1.
    cache_hit_rate: f64,
    messages_processed: u64,
    uptime_seconds: u64,
    /// The map whose losses it has let go of.
    assignment_version: u64,
}

/// What this worker is doing.
#[utoipa::path(get, path = "/api/v1/status", tag = "worker", responses((status = 200, body = Status)))]
pub(crate) async fn status(State(api): State<Api>) -> Json<Status> {
    let mut shown = Status {
        defender_id: None,
        pod_name: api.pod_name().to_owned(),
        state: "INITIALIZATION".to_owned(),
        is_leader: false,
        assigned_chambers: 0,
        cache_hit_rate: 0.0,
        messages_processed: 0,
        uptime_seconds: api.uptime().as_secs(),
        assignment_version: 0,
    };
    if let Ok(attached) = api.attached() {
        let handle = attached.defender.handle();
        let status = handle.status();
        shown.defender_id = status.holder.map(|holder| names().worker(holder.id));
        shown.state = status.state.name().to_owned();
        shown.is_leader = status.role == Role::Leader;
        shown.assigned_chambers = status.assignment.len();
        shown.cache_hit_rate = attached.defender.cache().statistics(Instant::now()).hit_rate;
        shown.messages_processed = handle.stats().processed;
        shown.assignment_version = status.applied_version.0;
    }
    Json(shown)
}

/// Who owns what.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Assignments {
    version: u64,
    lifecycle_state: Option<String>,
    /// The worker that was asked; absent while it holds no id.
    defender_id: Option<String>,
    chambers: Vec<Assigned>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Assigned {
    tool_id: String,
    chamber_id: String,
    weight: u64,
    defender_id: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// The whole map instead of this worker's part.
    #[serde(default)]
    all: bool,
}

/// The chambers of this worker, or of all.
#[utoipa::path(
    get,
    path = "/api/v1/assignments",
    tag = "worker",
    params(Which),
    responses((status = 200, body = Assignments), (status = 503, body = ErrorBody))
)]
pub(crate) async fn assignments(
    State(api): State<Api>,
    Query(which): Query<Which>,
) -> Result<Json<Assignments>, ApiError> {
    let status = api.attached()?.defender.handle().status();
    let (me, names): (Option<WorkerId>, _) = (status.holder.map(|holder| holder.id), names());
    let assigned = |(name, assignment): (&std::sync::Arc<str>, &phalanx_cluster::core::types::Assignment)| {
        let chamber = Chamber::of_partition(name)?;
        (which.all || Some(assignment.owner) == me).then(|| Assigned {
            tool_id: chamber.tool().to_owned(),
            chamber_id: chamber.chamber().to_owned(),
            weight: assignment.weight.0,
            defender_id: names.worker(assignment.owner),
        })
    };
    let chambers = status.map.iter().flat_map(|map| map.assignments.iter().filter_map(assigned)).collect();
    Ok(Json(Assignments {
        version: status.map_version.0,
        lifecycle_state: status.map.as_ref().map(|map| map.lifecycle.name().to_owned()),
        defender_id: me.map(|id| names.worker(id)),
        chambers,
    }))
}

/// How the cache does.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CacheStatistics {
    entries: u64,
    chambers: u64,
    bytes: u64,
    limit_bytes: u64,
    hits: u64,
    misses: u64,
    /// Of the last five minutes, 0 to 1.
    hit_rate: f64,
    evictions: u64,
}

/// How the cache of this worker does.
#[utoipa::path(
    get,
    path = "/api/v1/cache/stats",
    tag = "worker",
    responses((status = 200, body = CacheStatistics), (status = 503, body = ErrorBody))
)]
pub(crate) async fn cache(State(api): State<Api>) -> Result<Json<CacheStatistics>, ApiError> {
    let statistics = api.attached()?.defender.cache().statistics(Instant::now());
    Ok(Json(CacheStatistics {
        entries: statistics.chambers,
        chambers: statistics.chambers,
        bytes: statistics.bytes,
        limit_bytes: statistics.capacity,
        hits: statistics.hits,
        misses: statistics.misses,
        hit_rate: statistics.hit_rate,
        evictions: statistics.evictions,
    }))
}
