//! Where the processor's time goes, in pprof's own format.
#![allow(unused_qualifications, reason = "the macro that describes a route writes them")]

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use tokio::sync::Semaphore;
use utoipa::IntoParams;

use crate::{ApiError, ErrorBody, Token, pprof_format};

/// How often the stacks are looked at, each second; not a divisor of what else happens at round times.
const FREQUENCY: i32 = 99;
/// The longest profile.
const LONGEST: u64 = 300;

#[derive(Clone)]
pub(crate) struct Profiler {
    pub(crate) token: Token,
    /// One at a time: the signal that drives it is there once in a process.
    turns: Arc<Semaphore>,
}

impl Profiler {
    pub(crate) fn new(token: Token) -> Self {
        Self { token, turns: Arc::new(Semaphore::new(1)) }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct HowLong {
    /// How long to look, 1 to 300 seconds; 10 by default.
    seconds: Option<u64>,
}

/// Profiles this process for some seconds.
#[utoipa::path(
    get,
    path = "/debug/pprof/profile",
    tag = "service",
    params(HowLong),
    security(("token" = [])),
    responses(
        (status = 200, description = "a profile in pprof's format", content_type = "application/octet-stream"),
        (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody),
        (status = 409, description = "another profile is being made", body = ErrorBody),
    )
)]
pub(crate) async fn profile(
    State(profiler): State<Profiler>,
    Query(how_long): Query<HowLong>,
    headers: axum::http::HeaderMap,
) -> Result<Response, ApiError> {
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    profiler.token.check(authorization)?;
    let seconds = how_long.seconds.unwrap_or(10);
    if !(1..=LONGEST).contains(&seconds) {
        return Err(ApiError::bad_request(format!("seconds is {seconds}; allowed are 1 to {LONGEST}")));
    }
    let Ok(_turn) = profiler.turns.try_acquire() else {
        return Err(ApiError::conflict("another profile is being made; try again when it is done"));
    };
    let failed = |what: &str, e: &dyn std::fmt::Display| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("{what}: {e}"))
    };
    let guard = pprof::ProfilerGuardBuilder::default()
        .frequency(FREQUENCY)
        .build()
        .map_err(|e| failed("the profile cannot be begun", &e))?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let report = guard.report().build().map_err(|e| failed("the profile cannot be read", &e))?;
    let bytes = pprof_format::encode(&report);
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}
