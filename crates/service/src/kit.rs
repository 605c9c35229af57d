//! Puts a service together.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router, middleware};
use serde_json::{Value, json};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::profile::{self, Profiler};
use crate::token::{self, Token};
use crate::{ApiError, ErrorBody, Probes};

/// The largest request body, unless a route says otherwise.
const LARGEST_BODY: usize = 16 << 20;
/// As much of a refusal as is told.
const LONGEST_REFUSAL: usize = 64 << 10;
/// How long a request may take, unless it streams or profiles.
const TIME: Duration = Duration::from_secs(30);

/// What a service is made of, besides its own routes.
pub struct Kit {
    title: String,
    version: String,
    probes: Arc<dyn Probes>,
    token: Token,
    largest_body: usize,
}

/// A service, put together.
pub struct App {
    /// Everything it answers.
    pub router: Router,
    /// What it says of itself.
    pub openapi: OpenApi,
}

impl Kit {
    /// A service of that name and version, with what its probes answer and the token that changing needs.
    pub fn new(title: &str, version: &str, probes: Arc<dyn Probes>, token: Token) -> Self {
        let (title, version) = (title.to_owned(), version.to_owned());
        Self { title, version, probes, token, largest_body: LARGEST_BODY }
    }

    /// The largest request body in bytes.
    #[must_use]
    pub fn largest_body(mut self, bytes: usize) -> Self {
        self.largest_body = bytes;
        self
    }

    /// Adds what every service has to the routes of its own. Routes that are not reads need the token.
    pub fn build(self, own: OpenApiRouter) -> App {
        let shared = OpenApiRouter::new()
            .routes(routes!(live))
            .routes(routes!(ready))
            .routes(routes!(metrics))
            .with_state(self.probes);
        let profiles = OpenApiRouter::new()
            .routes(routes!(profile::profile))
            .with_state(Profiler::new(self.token.clone()));
        let described = OpenApiRouter::new().routes(routes!(openapi)).with_state(Arc::new(Value::Null));
        let base = OpenApiBuilder::new()
            .info(InfoBuilder::new().title(self.title).version(self.version).build())
            .components(Some(
                ComponentsBuilder::new()
                    .security_scheme(
                        "token",
                        SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()),
                    )
                    .build(),
            ))
            .build();
        // The document describes the route it is served at; the router of that route needs the finished document.
        let (_, document) = OpenApiRouter::with_openapi(base)
            .merge(own.clone())
            .merge(shared.clone())
            .merge(profiles.clone())
            .merge(described)
            .split_for_parts();
        let text = Arc::new(serde_json::to_value(&document).unwrap_or_default());
        let (quick, _) = own.merge(shared).split_for_parts();
        let (slow, _) = profiles.split_for_parts();
        let router = quick
            .route("/openapi.json", axum::routing::get(openapi).with_state(text))
            .layer(middleware::from_fn(in_time))
            .merge(slow)
            .fallback(unknown)
            .method_not_allowed_fallback(wrong_method)
            .layer(DefaultBodyLimit::max(self.largest_body))
            .layer(middleware::from_fn(with_error_body))
            .layer(middleware::from_fn_with_state(self.token, token::guard))
            .layer(CatchPanicLayer::custom(panicked));
        App { router, openapi: document }
    }
}

/// Whether the process works at all.
#[utoipa::path(
    get,
    path = "/health/live",
    tag = "service",
    responses((status = 200, body = Value), (status = 503, description = "what is stuck", body = Value))
)]
async fn live(State(probes): State<Arc<dyn Probes>>) -> Response {
    match probes.live() {
        Ok(()) => Json(json!({ "status": "ok" })).into_response(),
        Err(stuck) => {
            let body = json!({ "status": "stuck", "stuck": stuck });
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
    }
}

/// Whether it should be given work.
#[utoipa::path(
    get,
    path = "/health/ready",
    tag = "service",
    responses((status = 200, body = Value), (status = 503, description = "why not", body = Value))
)]
async fn ready(State(probes): State<Arc<dyn Probes>>) -> Response {
    let readiness = probes.ready().await;
    let (status, word) = match readiness.ready {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    let mut body = json!({ "status": word });
    if let (Some(body), Value::Object(details)) = (body.as_object_mut(), readiness.details) {
        body.extend(details);
    }
    (status, Json(body)).into_response()
}

/// The metrics, for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "service",
    responses((status = 200, body = String, content_type = "text/plain"))
)]
async fn metrics(State(probes): State<Arc<dyn Probes>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], probes.metrics()).into_response()
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "service", responses((status = 200, body = Value)))]
async fn openapi(State(document): State<Arc<Value>>) -> Json<Value> {
    Json((*document).clone())
}

async fn unknown(method: Method, uri: Uri) -> ApiError {
    ApiError::not_found(format!(
        "{method} {} is not here; /openapi.json lists everything that is",
        uri.path()
    ))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} cannot be asked with {method}; /openapi.json says how", uri.path()),
    )
}

async fn in_time(request: axum::extract::Request, next: middleware::Next) -> Response {
    // The headers of a stream are there at once; its body takes as long as it takes.
    match tokio::time::timeout(TIME, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let message = format!("the answer took longer than {} s", TIME.as_secs());
            ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message).into_response()
        }
    }
}

/// Whatever refuses a request before its handler is asked (a body too large, a query that cannot be read) answers in plain
/// text; every error has the same body.
async fn with_error_body(request: axum::extract::Request, next: middleware::Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let is_plain = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || !is_plain {
        return response;
    }
    let text = axum::body::to_bytes(response.into_body(), LONGEST_REFUSAL).await.unwrap_or_default();
    let word = status.canonical_reason().unwrap_or("error").to_lowercase().replace(' ', "_");
    ApiError::new(status, &word, String::from_utf8_lossy(&text)).into_response()
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let body = ErrorBody {
        error: "internal".to_owned(),
        message: format!("the handler failed: {}", text.unwrap_or("for a reason it does not say")),
    };
    (StatusCode::INTERNAL_SERVER_ERROR, Json(body)).into_response()
}
