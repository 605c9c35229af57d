//! Runs, and what became of them.

use axum::Json;
use axum::extract::{Path, Query, State};
use phalanx_service::{ApiError, ErrorBody};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::parameters::{away, chamber, limit, of_store};
use crate::report::{Report, ReportError};

/// Messages of a chamber.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContextList {
    tool_id: String,
    chamber_id: String,
    /// The newest first.
    contexts: Vec<ContextRow>,
}

/// What became of a message.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ContextRow {
    context_id: String,
    timestamp: String,
    /// `processed`, `no_charts`, `duplicate`, `command` or `dead`.
    outcome: &'static str,
    generation: u64,
    sequence: u64,
    take: u64,
    strategy: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// How many, 1 to 1000; 100 by default.
    limit: Option<usize>,
}

/// The last messages of a chamber, and what became of them.
#[utoipa::path(
    get,
    path = "/api/v1/contexts/{tool}/{chamber}",
    tag = "runs",
    params(("tool" = String, Path), ("chamber" = String, Path), Which),
    responses((status = 200, body = ContextList), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody))
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Path((tool, name)): Path<(String, String)>,
    Query(which): Query<Which>,
) -> Result<Json<ContextList>, ApiError> {
    let (chamber, limit) = (chamber(&tool, &name)?, limit(which.limit, 100, 1_000)?);
    let attached = api.attached()?;
    let rows = attached.defender.store().contexts(&chamber, None, limit).await.map_err(of_store)?;
    let contexts = rows.into_iter().map(|row| ContextRow {
        context_id: row.context.to_string(),
        timestamp: row.timestamp.to_string(),
        outcome: row.outcome.name(),
        generation: row.position.generation,
        sequence: row.position.sequence.0,
        take: row.take,
        strategy: row.strategy.to_string(),
    });
    Ok(Json(ContextList { tool_id: tool, chamber_id: name, contexts: contexts.collect() }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Message {
    /// Which message of the run is meant, by the sequence that the answer to its submission named.
    sequence: Option<u64>,
}

/// What a run came to: its outcome, its points, and the alarms it raised or cleared. There is an answer once its message is
/// committed.
#[utoipa::path(
    get,
    path = "/api/v1/contexts/{tool}/{chamber}/{context}",
    tag = "runs",
    params(("tool" = String, Path), ("chamber" = String, Path), ("context" = String, Path), Message),
    responses(
        (status = 200, body = Value),
        (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn report(
    State(api): State<Api>,
    Path((tool, name, context)): Path<(String, String, String)>,
    Query(message): Query<Message>,
) -> Result<Json<Value>, ApiError> {
    let chamber = chamber(&tool, &name)?;
    let attached = api.attached()?;
    let store = &**attached.defender.store();
    let report = Report::find(store, &attached.stores, &chamber, &context, message.sequence).await;
    let report = report.map_err(|error| match error {
        ReportError::Store(error) => of_store(error),
        ReportError::Backend(error) => away(error),
    })?;
    let missing = || {
        ApiError::not_found(format!(
            "there is no run {context:?} among the newest of {chamber}, or its message is not committed yet; \
             /api/v1/contexts/{tool}/{name} lists them"
        ))
    };
    Ok(Json(report.ok_or_else(missing)?.to_json()))
}
