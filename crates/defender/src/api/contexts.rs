//! Runs: the way in, and what became of them.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use phalanx_service::{ApiError, ErrorBody};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::parameters::{chamber, limit, moment, of_store};
use crate::collector::CollectError;
use crate::record::Outcome;
use crate::store::StoreError;
use crate::traces::Recording;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Run {
    /// The tool.
    tool: String,
    /// The chamber.
    chamber: String,
    /// The id of the run.
    context: String,
    /// When it ended; now by default.
    timestamp: Option<String>,
}

/// Takes a finished run in: its traces as CSV (`text/csv`), as JSON (`application/json`) or as a Mebo blob
/// (`application/octet-stream`). The answer comes when they are stored and the chamber is told.
#[utoipa::path(
    post,
    path = "/api/v1/contexts",
    tag = "runs",
    params(Run),
    request_body(content = String, content_type = "text/csv"),
    security(("token" = [])),
    responses(
        (status = 202, body = Value),
        (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn submit(
    State(api): State<Api>,
    Query(run): Query<Run>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let chamber = chamber(&run.tool, &run.chamber)?;
    let timestamp = moment("timestamp", run.timestamp.as_deref())?.unwrap_or_else(Timestamp::now);
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // Reading a large file takes long: not on the threads that answer others.
    let read = tokio::task::spawn_blocking(move || match kind.as_str() {
        "text/csv" => {
            Recording::from_csv(&body).and_then(|recording| recording.to_chunks()).map_err(|e| e.to_string())
        }
        "application/json" => {
            Recording::from_json(&body).and_then(|recording| recording.to_chunks()).map_err(|e| e.to_string())
        }
        "application/octet-stream" => Ok(vec![body]),
        other => Err(format!(
            "the content type is {other:?}; allowed are text/csv, application/json and application/octet-stream"
        )),
    });
    let chunks = match read.await {
        Ok(read) => read.map_err(ApiError::bad_request)?,
        Err(error) => {
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()));
        }
    };
    let collected = api.attached()?.collector.submit(&chamber, &run.context, timestamp, &chunks).await;
    let collected = collected.map_err(refused)?;
    let answer = json!({
        "toolId": run.tool,
        "chamberId": run.chamber,
        "contextId": run.context,
        "sequence": collected.sequence,
        "duplicate": collected.duplicate,
    });
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// Why a run was not taken in, to a client.
pub(super) fn refused(error: CollectError) -> ApiError {
    match &error {
        CollectError::Store(StoreError::Unavailable(_)) | CollectError::Log(_) => {
            ApiError::unavailable(error.to_string())
        }
        _ => ApiError::bad_request(error.to_string()),
    }
}

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
    let rows = attached.defender.store().contexts(&chamber, limit).await.map_err(of_store)?;
    let contexts = rows.into_iter().map(|row| ContextRow {
        context_id: row.context.to_string(),
        timestamp: row.timestamp.to_string(),
        outcome: match row.outcome {
            Outcome::Processed => "processed",
            Outcome::NoCharts => "no_charts",
            Outcome::Duplicate => "duplicate",
            Outcome::Command => "command",
            Outcome::Dead => "dead",
        },
        generation: row.position.generation,
        sequence: row.position.sequence,
        take: row.take,
        strategy: row.strategy.to_string(),
    });
    Ok(Json(ContextList { tool_id: tool, chamber_id: name, contexts: contexts.collect() }))
}
