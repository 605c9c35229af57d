//! A service made with the kit, asked over HTTP.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

use std::io::{BufRead as _, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use phalanx_service::{App, ErrorBody, Events, Kit, Probes, Readiness, Server, Token};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(Default)]
struct Switches {
    stuck: AtomicBool,
    unready: AtomicBool,
}

#[async_trait::async_trait]
impl Probes for Switches {
    fn live(&self) -> Result<(), String> {
        if self.stuck.load(Ordering::Relaxed) { Err("event loop".to_owned()) } else { Ok(()) }
    }

    async fn ready(&self) -> Readiness {
        match self.unready.load(Ordering::Relaxed) {
            true => Readiness::not_ready(json!({ "store": "does not answer" })),
            false => Readiness::ready(json!({ "standby": true })),
        }
    }

    fn metrics(&self) -> String {
        "# TYPE turns counter\nturns 3\n".to_owned()
    }
}

#[derive(Clone)]
struct Own {
    changes: Arc<AtomicU32>,
    events: Events,
}

/// Changes something.
#[utoipa::path(post, path = "/api/v1/change", security(("token" = [])), responses((status = 200, body = Value)))]
async fn change(State(own): State<Own>, body: String) -> impl IntoResponse {
    own.changes.fetch_add(1, Ordering::Relaxed);
    axum::Json(json!({ "length": body.len() }))
}

/// Panics.
#[utoipa::path(get, path = "/api/v1/panic", responses((status = 500, body = ErrorBody)))]
async fn panics() -> &'static str {
    panic!("as it was told to")
}

/// Streams.
#[utoipa::path(get, path = "/api/v1/events", responses((status = 200, body = String)))]
async fn events(State(own): State<Own>, headers: HeaderMap) -> impl IntoResponse {
    own.events.stream(&headers)
}

struct Running {
    server: Server,
    switches: Arc<Switches>,
    own: Own,
    openapi: Value,
}

async fn running(token: Token) -> Running {
    let switches = Arc::new(Switches::default());
    let own = Own { changes: Arc::default(), events: Events::new(7) };
    let routes = OpenApiRouter::new()
        .routes(routes!(change))
        .routes(routes!(panics))
        .routes(routes!(events))
        .with_state(own.clone());
    let kit = Kit::new("Test", "1.2.3", switches.clone(), token).largest_body(1_000);
    let App { router, openapi } = kit.build(routes);
    let server = Server::bind("127.0.0.1:0", router).await.unwrap();
    Running { server, switches, own, openapi: serde_json::to_value(openapi).unwrap() }
}

/// A request as any client makes it: status, content type, body.
async fn ask(
    method: &'static str,
    url: String,
    token: Option<&'static str>,
    body: String,
) -> (u16, String, String) {
    tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let mut response = agent.run(request.body(body).unwrap()).unwrap();
        let kind =
            response.headers().get("content-type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
        (response.status().as_u16(), kind, response.body_mut().read_to_string().unwrap())
    })
    .await
    .unwrap()
}

async fn get(running: &Running, path: &str) -> (u16, Value) {
    let (status, _, body) = ask("GET", format!("{}{path}", running.server.url()), None, String::new()).await;
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_say_what_is_the_matter() {
    let running = running(Token::none()).await;
    assert_eq!(get(&running, "/health/live").await, (200, json!({ "status": "ok" })));
    assert_eq!(get(&running, "/health/ready").await, (200, json!({ "status": "ready", "standby": true })));
    running.switches.stuck.store(true, Ordering::Relaxed);
    running.switches.unready.store(true, Ordering::Relaxed);
    assert_eq!(
        get(&running, "/health/live").await,
        (503, json!({ "status": "stuck", "stuck": "event loop" }))
    );
    let not_ready = json!({ "status": "not ready", "store": "does not answer" });
    assert_eq!(get(&running, "/health/ready").await, (503, not_ready));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_text_for_prometheus() {
    let running = running(Token::none()).await;
    let (status, kind, body) =
        ask("GET", format!("{}/metrics", running.server.url()), None, String::new()).await;
    assert_eq!((status, kind.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    assert!(body.contains("turns 3"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changing_needs_the_token_and_is_off_without_one() {
    let with = running(Token::new("secret")).await;
    let without = running(Token::none()).await;
    let change = |running: &Running, token| {
        ask("POST", format!("{}/api/v1/change", running.server.url()), token, "abc".to_owned())
    };
    assert_eq!(change(&with, None).await.0, 401);
    assert_eq!(change(&with, Some("Bearer wrong")).await.0, 401);
    assert_eq!(change(&without, Some("Bearer secret")).await.0, 403);
    assert_eq!(
        (with.own.changes.load(Ordering::Relaxed), without.own.changes.load(Ordering::Relaxed)),
        (0, 0)
    );
    let (status, _, body) = change(&with, Some("Bearer secret")).await;
    assert_eq!((status, body.as_str()), (200, r#"{"length":3}"#));
    assert_eq!(with.own.changes.load(Ordering::Relaxed), 1);
    let profile = ask("GET", format!("{}/debug/pprof/profile", with.server.url()), None, String::new()).await;
    assert_eq!(profile.0, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_has_the_same_body() {
    let running = running(Token::new("secret")).await;
    let url = running.server.url();
    let large = "x".repeat(1_001);
    for (method, path, body, status) in [
        ("GET", "/api/v1/nothing", String::new(), 404),
        ("DELETE", "/api/v1/change", String::new(), 405),
        ("GET", "/api/v1/panic", String::new(), 500),
        ("GET", "/debug/pprof/profile?seconds=soon", String::new(), 400),
        ("POST", "/api/v1/change", large, 413),
    ] {
        let (got, kind, body) = ask(method, format!("{url}{path}"), Some("Bearer secret"), body).await;
        assert_eq!((got, kind.as_str()), (status, "application/json"), "{method} {path}: {body}");
        let body: ErrorBody = serde_json::from_str(&body).unwrap();
        assert!(!body.error.is_empty() && !body.message.is_empty(), "{body:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openapi_document_lists_every_route() {
    let running = running(Token::none()).await;
    let (status, served) = get(&running, "/openapi.json").await;
    assert_eq!((status, &served), (200, &running.openapi));
    let paths: Vec<&String> = served["paths"].as_object().unwrap().keys().collect();
    let expected = [
        "/api/v1/change",
        "/api/v1/events",
        "/api/v1/panic",
        "/debug/pprof/profile",
        "/health/live",
        "/health/ready",
        "/metrics",
        "/openapi.json",
    ];
    assert_eq!(paths, expected);
    assert_eq!(served["info"]["title"], "Test");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_comes_back_gets_what_it_missed() {
    let running = running(Token::none()).await;
    running.own.events.publish("alarm", json!({ "n": 1 }));
    running.own.events.publish("alarm", json!({ "n": 2 }));
    running.own.events.publish("state", json!({ "n": 3 }));
    let url = format!("{}/api/v1/events", running.server.url());
    let lines = tokio::task::spawn_blocking(move || {
        let response = ureq::get(url).header("last-event-id", "7-1").call().unwrap();
        let reader = BufReader::new(response.into_body().into_reader());
        reader.lines().take(7).map(Result::unwrap).collect::<Vec<_>>()
    });
    let mut lines = lines.await.unwrap();
    lines[..3].sort();
    assert_eq!(lines[..3], [r#"data: {"n":2}"#, "event: alarm", "id: 7-2"]);
    assert_eq!(lines[3], "");
    assert!(lines[4..].contains(&"id: 7-3".to_owned()), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_is_in_pprofs_format_and_one_at_a_time() {
    let running = running(Token::new("secret")).await;
    let url = format!("{}/debug/pprof/profile?seconds=", running.server.url());
    assert_eq!(ask("GET", format!("{url}0"), Some("Bearer secret"), String::new()).await.0, 400);
    let ask_for_one = || {
        let url = format!("{url}1");
        tokio::task::spawn_blocking(move || {
            let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
            let mut response = agent.get(url).header("authorization", "Bearer secret").call().unwrap();
            (response.status().as_u16(), response.body_mut().read_to_vec().unwrap())
        })
    };
    let (one, other) = tokio::join!(ask_for_one(), ask_for_one());
    let mut answers = [one.unwrap(), other.unwrap()];
    answers.sort_by_key(|(status, _)| *status);
    assert_eq!((answers[0].0, answers[1].0), (200, 409));
    // The first field of a profile is its list of sample types: field 1, a message.
    assert_eq!(answers[0].1.first(), Some(&0x0a));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_taken_is_named_in_the_error() {
    let running = running(Token::none()).await;
    let address = running.server.address().to_string();
    let error = Server::bind(&address, axum::Router::new()).await.err().unwrap().to_string();
    assert!(error.contains(&address) && error.contains("HTTP_ADDR"), "{error}");
}
