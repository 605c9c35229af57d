//! Chambers: which there are, what they weigh, who owns them, how far they are.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::{Path, State};
use jiff::Timestamp;
use phalanx_cluster::core::types::AssignmentMap;
use phalanx_service::{ApiError, ErrorBody};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::parameters::{away, chamber, of_store};
use super::{Api, Attached};
use crate::names::names;
use crate::record::{AlarmState, Chamber, Metadata};
use crate::weights::{announce_import, import as read_list};

/// All chambers.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChamberList {
    chambers: Vec<ChamberRow>,
}

/// A chamber.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChamberRow {
    tool_id: String,
    chamber_id: String,
    /// What it weighs in the balance of the fleet.
    weight: Option<u64>,
    /// Whose it is by the map; absent while nobody's.
    defender_id: Option<String>,
    svid_count: Option<u32>,
    collection_freq_hz: Option<f64>,
    context_duration_seconds: Option<f64>,
    /// When its figures were last imported or estimated.
    last_updated: Option<String>,
}

/// A chamber, and how far it is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChamberState {
    #[serde(flatten)]
    chamber: ChamberRow,
    /// The charts it has points of.
    indicators: Vec<String>,
    /// Alarms whose condition holds.
    open_alarms: usize,
    /// The last message that was committed, by the chamber's cursor; absent before the first.
    cursor: Value,
    /// What became of the last message.
    last_run: Value,
}

/// Every chamber that is listed or assigned.
#[utoipa::path(
    get,
    path = "/api/v1/chambers",
    tag = "chambers",
    responses((status = 200, body = ChamberList), (status = 503, body = ErrorBody))
)]
pub(crate) async fn list(State(api): State<Api>) -> Result<Json<ChamberList>, ApiError> {
    let attached = api.attached()?;
    let known = known(&attached).await?;
    let map = attached.defender.handle().status().map;
    let assigned = map.iter().flat_map(|map| map.assignments.keys());
    let all: BTreeSet<Chamber> =
        known.keys().cloned().chain(assigned.filter_map(|name| Chamber::of_partition(name))).collect();
    let chambers = all.iter().map(|chamber| row(chamber, known.get(chamber), map.as_deref())).collect();
    Ok(Json(ChamberList { chambers }))
}

/// One chamber: its figures, its owner, its charts and how far it is.
#[utoipa::path(
    get,
    path = "/api/v1/chambers/{tool}/{chamber}",
    tag = "chambers",
    params(("tool" = String, Path), ("chamber" = String, Path)),
    responses(
        (status = 200, body = ChamberState),
        (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn show(
    State(api): State<Api>,
    Path((tool, name)): Path<(String, String)>,
) -> Result<Json<ChamberState>, ApiError> {
    let chamber = chamber(&tool, &name)?;
    let attached = api.attached()?;
    let store = attached.defender.store();
    let known = known(&attached).await?;
    let map = attached.defender.handle().status().map;
    let is_assigned = map.as_ref().is_some_and(|map| map.assignments.contains_key(&*chamber.to_string()));
    if !known.contains_key(&chamber) && !is_assigned {
        let message = format!("there is no chamber {chamber}; /api/v1/chambers lists them");
        return Err(ApiError::not_found(message));
    }
    let indicators = store.indicators(&chamber).await.map_err(of_store)?;
    let alarms = store.alarms(Some(&chamber), Timestamp::UNIX_EPOCH, None, 1_000).await.map_err(of_store)?;
    let last = store.contexts(&chamber, None, 1).await.map_err(of_store)?.pop();
    let cursor = attached.stores.cursor(&chamber.to_string()).await.map_err(away)?;
    Ok(Json(ChamberState {
        chamber: row(&chamber, known.get(&chamber), map.as_deref()),
        indicators: indicators.iter().map(ToString::to_string).collect(),
        open_alarms: alarms.alarms.iter().filter(|(alarm, _)| alarm.state == AlarmState::Open).count(),
        cursor: cursor.map_or(Value::Null, |cursor| {
            json!({
                "generation": cursor.position.generation,
                "sequence": cursor.position.sequence.0,
                "contextId": cursor.message_id.as_deref().unwrap_or_default(),
                "failures": cursor.failures,
                "deaths": cursor.worker_crashes,
            })
        }),
        last_run: last.map_or(Value::Null, |last| {
            json!({
                "contextId": &*last.context,
                "timestamp": last.timestamp.to_string(),
                "outcome": last.outcome.name(),
            })
        }),
    }))
}

async fn known(attached: &Attached) -> Result<BTreeMap<Chamber, Metadata>, ApiError> {
    let known = attached.defender.store().metadata().await.map_err(of_store)?;
    Ok(known.into_iter().map(|metadata| (metadata.chamber.clone(), metadata)).collect())
}

fn row(chamber: &Chamber, known: Option<&Metadata>, map: Option<&AssignmentMap>) -> ChamberRow {
    let assignment = map.and_then(|map| map.assignments.get(&*chamber.to_string()));
    ChamberRow {
        tool_id: chamber.tool().to_owned(),
        chamber_id: chamber.chamber().to_owned(),
        weight: known.map(|known| known.weight).or(assignment.map(|assignment| assignment.weight.0)),
        defender_id: assignment.map(|assignment| names().worker(assignment.owner)),
        svid_count: known.map(|known| known.svid_count),
        collection_freq_hz: known.map(|known| known.collection_freq_hz),
        context_duration_seconds: known.map(|known| known.context_duration_seconds),
        last_updated: known.map(|known| known.last_updated.to_string()),
    }
}

/// Takes a list of chambers in (CSV with the columns `tool_id`, `chamber_id`, `svid_count`, `collection_freq_hz`,
/// `context_duration_seconds`): all of it, or, where a line is wrong, nothing.
#[utoipa::path(
    post,
    path = "/api/v1/chambers",
    tag = "chambers",
    request_body(content = String, content_type = "text/csv"),
    security(("token" = [])),
    responses(
        (status = 200, body = Value),
        (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn import(State(api): State<Api>, list: String) -> Result<Json<Value>, ApiError> {
    let chambers =
        read_list(&list, Timestamp::now()).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let attached = api.attached()?;
    attached.defender.store().put_metadata(&chambers).await.map_err(of_store)?;
    announce_import(&*attached.stores.assignments, "imported over HTTP").await.map_err(away)?;
    let weight: u64 = chambers.iter().fold(0, |sum, chamber| sum.saturating_add(chamber.weight));
    Ok(Json(json!({ "imported": chambers.len(), "weight": weight })))
}
