//! Charts: their points, limits and signals, as numbers and as a picture.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use phalanx_cluster::core::Position;
use phalanx_service::{ApiError, ErrorBody};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::parameters::{chamber, limit, moment, of_store};
use super::{Api, svg};
use crate::notification::{Rebaseline, check_context};
use crate::record::{Chamber, Flags, UChart};
use crate::store::{ChartStore, StoreError};

/// The charts of a chamber.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChartList {
    tool_id: String,
    chamber_id: String,
    indicators: Vec<String>,
}

/// The charts that a chamber has points of.
#[utoipa::path(
    get,
    path = "/api/v1/charts/{tool}/{chamber}",
    tag = "charts",
    params(("tool" = String, Path), ("chamber" = String, Path)),
    responses((status = 200, body = ChartList), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody))
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Path((tool, name)): Path<(String, String)>,
) -> Result<Json<ChartList>, ApiError> {
    let chamber = chamber(&tool, &name)?;
    let attached = api.attached()?;
    let indicators = attached.defender.store().indicators(&chamber).await.map_err(of_store)?;
    let indicators = indicators.iter().map(ToString::to_string).collect();
    Ok(Json(ChartList { tool_id: tool, chamber_id: name, indicators }))
}

/// A chart.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Chart {
    tool_id: String,
    chamber_id: String,
    indicator: String,
    /// The newest first.
    points: Vec<Point>,
}

/// A point of a chart.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Point {
    pub(super) timestamp: String,
    context_id: String,
    /// Absent where the equation had no value.
    pub(super) value: Option<f64>,
    pub(super) center: Option<f64>,
    pub(super) lcl: Option<f64>,
    pub(super) ucl: Option<f64>,
    sigma: Option<f64>,
    n: u32,
    /// The limits were still being learned.
    pub(super) learning: bool,
    /// A rule was broken.
    pub(super) violation: bool,
    /// The chart began anew here.
    begins: bool,
    strategy: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// How many points, 1 to 1000; 100 by default.
    limit: Option<usize>,
    /// Only points before this time.
    before: Option<String>,
    /// `json`, or `svg` for a picture.
    format: Option<String>,
}

/// The points of a chart with their limits, as JSON or as a picture.
#[utoipa::path(
    get,
    path = "/api/v1/charts/{tool}/{chamber}/{indicator}",
    tag = "charts",
    params(("tool" = String, Path), ("chamber" = String, Path), ("indicator" = String, Path), Which),
    responses(
        (status = 200, body = Chart),
        (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn chart(
    State(api): State<Api>,
    Path((tool, name, indicator)): Path<(String, String, String)>,
    Query(which): Query<Which>,
) -> Result<Response, ApiError> {
    let (chamber, limit) = (chamber(&tool, &name)?, limit(which.limit, 100, 1_000)?);
    let before = moment("before", which.before.as_deref())?;
    let attached = api.attached()?;
    let rows = counted(&**attached.defender.store(), &chamber, &indicator, before, limit).await?;
    if rows.is_empty() {
        return Err(ApiError::not_found(format!(
            "{chamber} has no points on a chart {indicator:?}; /api/v1/charts/{tool}/{name} lists its charts"
        )));
    }
    let points: Vec<Point> = rows.into_iter().map(point).collect();
    match which.format.as_deref() {
        None | Some("json") => {
            Ok(Json(Chart { tool_id: tool, chamber_id: name, indicator, points }).into_response())
        }
        Some("svg") => {
            let picture = svg::picture(&format!("{chamber} {indicator}"), &points);
            Ok(([(header::CONTENT_TYPE, "image/svg+xml")], picture).into_response())
        }
        Some(other) => Err(ApiError::bad_request(format!("format is {other:?}; allowed are json and svg"))),
    }
}

/// The newest points that count: what an attempt wrote that a later one has superseded is left out. The point of a message
/// that is just being processed is there as soon as it is written.
async fn counted(
    store: &dyn ChartStore,
    chamber: &Chamber,
    indicator: &str,
    before: Option<Timestamp>,
    limit: usize,
) -> Result<Vec<UChart>, ApiError> {
    // Few points are superseded: mostly the first answer has enough that count.
    let mut asked = limit + 16;
    loop {
        let rows = store.u_charts(chamber, indicator, before, asked).await.map_err(of_store)?;
        let is_all = rows.len() < asked;
        let takes = takes(store, chamber, &rows).await.map_err(of_store)?;
        let counts = |(_, position, take): &(UChart, Position, u64)| takes.get(position) == Some(take);
        let points: Vec<UChart> = rows.into_iter().filter(counts).map(|(row, ..)| row).take(limit).collect();
        if is_all || points.len() == limit {
            return Ok(points);
        }
        asked *= 4;
    }
}

/// Which attempt counts, of the messages that left these points.
async fn takes(
    store: &dyn ChartStore,
    chamber: &Chamber,
    rows: &[(UChart, Position, u64)],
) -> Result<HashMap<Position, u64>, StoreError> {
    let mut takes = HashMap::new();
    let Some(oldest) = rows.iter().map(|(_, position, _)| *position).min() else { return Ok(takes) };
    let mut from = rows.iter().map(|(_, position, _)| *position).max();
    // The pages overlap by one message.
    while let Some(begin) = from {
        let page = store.contexts(chamber, from, rows.len() + 1).await?;
        takes.extend(page.iter().map(|one| (one.position, one.take)));
        from = page.last().map(|last| last.position).filter(|last| *last > oldest && *last < begin);
    }
    Ok(takes)
}

fn point(row: UChart) -> Point {
    let limits = row.limits;
    Point {
        timestamp: row.timestamp.to_string(),
        context_id: row.context.to_string(),
        value: row.value,
        center: limits.map(|limits| limits.center),
        lcl: limits.and_then(|limits| limits.lcl),
        ucl: limits.and_then(|limits| limits.ucl),
        sigma: limits.and_then(|limits| limits.sigma),
        n: row.n,
        learning: row.flags.has(Flags::LEARNING),
        violation: row.flags.has(Flags::VIOLATION),
        begins: row.flags.has(Flags::BEGINS),
        strategy: row.strategy.to_string(),
    }
}

/// Which charts begin anew.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Begin {
    /// Names this command, so that it takes effect once however often it is sent.
    context_id: String,
    /// All charts of the chamber where none are named.
    charts: Option<Vec<String>>,
}

/// Tells charts of a chamber to learn their limits anew, in order with its runs.
#[utoipa::path(
    post,
    path = "/api/v1/charts/{tool}/{chamber}/rebaseline",
    tag = "charts",
    params(("tool" = String, Path), ("chamber" = String, Path)),
    request_body = Begin,
    security(("token" = [])),
    responses(
        (status = 200, body = Value),
        (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn rebaseline(
    State(api): State<Api>,
    Path((tool, name)): Path<(String, String)>,
    Json(begin): Json<Begin>,
) -> Result<Json<Value>, ApiError> {
    let chamber = chamber(&tool, &name)?;
    check_context(&begin.context_id).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let command = Rebaseline {
        chamber,
        context: begin.context_id.into(),
        timestamp: Timestamp::now(),
        charts: begin.charts.map(|charts| charts.into_iter().map(Into::into).collect()),
    };
    let collected = api.0.intake.collector()?.rebaseline(&command).await;
    let collected = collected.map_err(super::intake::refused)?;
    Ok(Json(serde_json::json!({ "sequence": collected.sequence, "duplicate": collected.duplicate })))
}
