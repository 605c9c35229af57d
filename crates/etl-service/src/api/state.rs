//! How the engine stands.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use phalanx_etl::core::timetable::Feed;
use phalanx_etl::store::{Checkpoint, EventRow, MacroStats, ProviderStats, Reader, RunRow};
use phalanx_service::{ApiError, ErrorBody};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use crate::keeper::time;

/// As many rows as a list has at most.
const LONGEST: usize = 10_000;
/// As many runs as are shown of a provider.
const RUNS: usize = 20;

/// The orchestrator and its providers.
#[derive(Serialize, ToSchema)]
pub(super) struct Tree {
    /// The orchestrator; `null` before it has begun.
    r#macro: Option<MacroStats>,
    /// The providers, in the order they start.
    providers: Vec<Node>,
}

/// One provider: its statistics, and how its feed stands.
#[derive(Serialize, ToSchema)]
pub(super) struct Node {
    #[serde(flatten)]
    statistics: ProviderStats,
    feed: FeedView,
}

/// How a feed stands.
#[derive(Serialize, ToSchema)]
pub(super) struct FeedView {
    /// When it is read: an interval, five fields of cron in UTC, or `never`.
    schedule: String,
    /// When it is read next; `null` where nothing is planned.
    next_start: Option<String>,
    /// When its last completed run ended; `null` where none has.
    completed_at: Option<String>,
    /// How old that may be.
    fresh_within_seconds: u64,
    /// Until then it is fresh.
    fresh_until: String,
    /// Whether it has not completed within its limit.
    stale: bool,
}

impl From<&Feed> for FeedView {
    fn from(feed: &Feed) -> Self {
        Self {
            schedule: feed.plan.schedule.to_string(),
            next_start: feed.next_start.map(time),
            completed_at: feed.past.completed.map(time),
            fresh_within_seconds: feed.plan.fresh_within.as_secs(),
            fresh_until: time(feed.stale_at()),
            stale: feed.is_stale,
        }
    }
}

/// One provider, and its latest runs.
#[derive(Serialize, ToSchema)]
pub(super) struct ProviderView {
    #[serde(flatten)]
    node: Node,
    /// What must have completed before it starts.
    dependencies: Vec<String>,
    /// Its latest runs, oldest first.
    runs: Vec<RunRow>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Limit {
    /// How many at most, 1 to 10,000; 100 by default.
    limit: Option<usize>,
}

impl Limit {
    fn get(&self) -> Result<usize, ApiError> {
        let limit = self.limit.unwrap_or(100);
        if (1..=LONGEST).contains(&limit) {
            return Ok(limit);
        }
        Err(ApiError::bad_request(format!("limit is {limit}; allowed are 1 to {LONGEST}")))
    }
}

/// Checkpoints, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Checkpoints {
    checkpoints: Vec<Checkpoint>,
}

/// Events, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct EventList {
    events: Vec<EventRow>,
}

impl Api {
    async fn nodes(&self) -> Result<Vec<Node>, ApiError> {
        let mut statistics = self.readers.read(Reader::providers).await?;
        let feeds = self.feeds.all();
        let node = |id: &String| {
            let at = statistics.iter().position(|one| one.id == *id)?;
            Some(Node { statistics: statistics.swap_remove(at), feed: feeds.get(id)?.into() })
        };
        Ok(self.ids.iter().filter_map(node).collect())
    }

    /// Whether there is such a provider, and if not, which there are.
    pub(super) fn known(&self, id: &str) -> Result<(), ApiError> {
        if self.ids.iter().any(|one| one == id) {
            return Ok(());
        }
        Err(ApiError::not_found(format!("there is no provider `{id}`; there are: {}", self.ids.join(", "))))
    }
}

/// The orchestrator and every provider, with their statistics.
#[utoipa::path(get, path = "/api/v1/etl/tree", tag = "state", responses((status = 200, body = Tree)))]
pub(super) async fn tree(State(api): State<Api>) -> Result<Json<Tree>, ApiError> {
    let orchestrator = api.readers.read(Reader::macro_stats).await?;
    Ok(Json(Tree { r#macro: orchestrator, providers: api.nodes().await? }))
}

/// One provider: statistics, feed, dependencies, latest runs.
#[utoipa::path(
    get,
    path = "/api/v1/etl/providers/{id}",
    tag = "state",
    params(("id" = String, Path, description = "such as cve")),
    responses((status = 200, body = ProviderView), (status = 404, body = ErrorBody))
)]
pub(super) async fn provider(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<ProviderView>, ApiError> {
    api.known(&id)?;
    let nodes = api.nodes().await?;
    let Some(node) = nodes.into_iter().find(|node| node.statistics.id == id) else {
        return Err(ApiError::unavailable(format!("the store does not know {id} yet; ask again")));
    };
    let of = id.clone();
    let mut runs = api.readers.read(move |reader| reader.runs_of(&of, RUNS)).await?;
    runs.reverse();
    Ok(Json(ProviderView {
        node,
        dependencies: api.dependencies.get(&id).cloned().unwrap_or_default(),
        runs,
    }))
}

/// The latest checkpoints, oldest first.
#[utoipa::path(
    get,
    path = "/api/v1/etl/checkpoints",
    tag = "state",
    params(Limit),
    responses((status = 200, body = Checkpoints), (status = 400, body = ErrorBody))
)]
pub(super) async fn checkpoints(
    State(api): State<Api>,
    Query(limit): Query<Limit>,
) -> Result<Json<Checkpoints>, ApiError> {
    let limit = limit.get()?;
    let checkpoints = api.readers.read(move |reader| reader.checkpoints(limit)).await?;
    Ok(Json(Checkpoints { checkpoints }))
}

/// The latest events, oldest first; as a stream, from now on or after `Last-Event-ID`, for whoever accepts
/// `text/event-stream`. The stream also has `STALE` and `FRESH`.
#[utoipa::path(
    get,
    path = "/api/v1/etl/events",
    tag = "state",
    params(Limit),
    responses(
        (status = 200, content((EventList = "application/json"), (String = "text/event-stream"))),
        (status = 400, body = ErrorBody),
    )
)]
pub(super) async fn events(
    State(api): State<Api>,
    Query(limit): Query<Limit>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepted.contains("text/event-stream") {
        return Ok(api.events.stream(&headers).into_response());
    }
    let limit = limit.get()?;
    let events = api.readers.read(move |reader| reader.events(limit)).await?;
    Ok(Json(EventList { events }).into_response())
}
