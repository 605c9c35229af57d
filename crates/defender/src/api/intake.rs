//! The way in over HTTP: of a defender, or of a collector that does nothing else.

use std::sync::{Arc, Mutex};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use phalanx_service::{ApiError, ErrorBody};
use prometheus::{Encoder as _, IntCounterVec, Opts, Registry, TextEncoder};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::lock;
use super::parameters::{chamber, moment};
use crate::collector::{CollectError, Collector};
use crate::store::StoreError;
use crate::traces::{EncodedTraces, Recording};

/// Where runs are handed in. It is closed until there is something behind it. Clones are the same.
#[derive(Clone)]
pub(crate) struct Intake {
    collector: Arc<Mutex<Option<Collector>>>,
    registry: Registry,
    runs: IntCounterVec,
}

impl Default for Intake {
    fn default() -> Self {
        Self::counting(Registry::new())
    }
}

impl Intake {
    /// Counts in that registry.
    pub(super) fn counting(registry: Registry) -> Self {
        let help =
            "runs handed in over HTTP, by what became of that: accepted, duplicate, refused, unavailable";
        let runs = IntCounterVec::new(Opts::new("phalanx_collector_runs_total", help), &["result"])
            .unwrap_or_else(|e| unreachable!("a metric of this file: {e}"));
        // One registry has it once: whoever makes a second intake for it counts apart.
        let _ = registry.register(Box::new(runs.clone()));
        for result in ["accepted", "duplicate", "refused", "unavailable"] {
            runs.with_label_values(&[result]);
        }
        Self { collector: Arc::default(), registry, runs }
    }

    /// What was counted, in the text format of Prometheus.
    pub(super) fn metrics(&self) -> String {
        let mut text = Vec::new();
        // Writing to memory cannot fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Runs go there from now on.
    pub(super) fn open(&self, collector: Collector) {
        *lock(&self.collector) = Some(collector);
    }

    /// Nothing is taken in any more.
    pub(super) fn close(&self) {
        *lock(&self.collector) = None;
    }

    pub(super) fn collector(&self) -> Result<Collector, ApiError> {
        let collector = lock(&self.collector).clone();
        collector.ok_or_else(|| {
            ApiError::unavailable("the service has not started yet: /health/ready says what it waits for")
        })
    }
}

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
    State(intake): State<Intake>,
    Query(run): Query<Run>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let taken = take(&intake, run, &headers, body).await;
    let result = match &taken {
        Ok((_, Json(answer))) if answer["duplicate"] == true => "duplicate",
        Ok(_) => "accepted",
        Err(error) if error.status().is_client_error() => "refused",
        Err(_) => "unavailable",
    };
    intake.runs.with_label_values(&[result]).inc();
    taken
}

async fn take(
    intake: &Intake,
    run: Run,
    headers: &HeaderMap,
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
        "application/octet-stream" => EncodedTraces::from_blobs(vec![body]).map_err(|e| e.to_string()),
        other => Err(format!(
            "the content type is {other:?}; allowed are text/csv, application/json and application/octet-stream"
        )),
    });
    let traces = match read.await {
        Ok(read) => read.map_err(ApiError::bad_request)?,
        Err(error) => {
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()));
        }
    };
    let collected = intake.collector()?.submit(&chamber, &run.context, timestamp, &traces).await;
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
