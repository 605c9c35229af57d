//! The HTTP API of a defender: what it does, what the fleet does, charts, alarms, and the way in.
//!
//! The service listens before the worker has started and while what it needs is away, so that whoever runs it can see what
//! it waits for. Reading is open; whatever changes something needs the token.
#![allow(unused_qualifications, reason = "the macro that describes a route writes them")]

mod alarms;
mod chambers;
mod charts;
mod cluster;
mod collector;
mod contexts;
mod dlq;
mod intake;
mod parameters;
mod status;
mod svg;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::extract::{FromRef, State};
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use phalanx_cluster::Role;
use phalanx_cluster::backend::{self, Backend, StoreConfig, Stores};
use phalanx_cluster::core::WorkerState;
use phalanx_fsm::State as _;
use phalanx_service::{ApiError, App, Events, Kit, PATIENCE, Probes, Readiness, Token};
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use self::collector::CollectorApi;
use self::intake::Intake;
use crate::judge::alarm::alarm_json;
use crate::record::Alarm;
use crate::store::ChartStore;
use crate::worker::Defender;
use crate::{Metrics, Observer};

/// How long the store or the broker may take to answer a probe.
const PROBE: Duration = Duration::from_secs(2);
/// The largest run that is taken in over HTTP.
const LARGEST_BODY: usize = 256 << 20;

/// The API of one defender. Clones are the same API.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    pod_name: String,
    metrics: Metrics,
    started: Instant,
    events: Events,
    attached: Mutex<Option<Arc<Attached>>>,
    intake: Intake,
    /// What the start waits for.
    waits_for: Mutex<Option<String>>,
}

/// What there is once the worker has started.
pub(crate) struct Attached {
    pub(crate) defender: Arc<Defender>,
    pub(crate) stores: Stores,
}

impl Api {
    /// The API of a defender that has not started yet. `pod_name` is what people call this process.
    pub fn new(pod_name: &str, metrics: Metrics) -> Self {
        let life = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let intake = Intake::counting(metrics.cluster().registry().clone());
        Self(Arc::new(Inner {
            pod_name: pod_name.to_owned(),
            metrics,
            started: Instant::now(),
            events: Events::new(life),
            attached: Mutex::default(),
            intake,
            waits_for: Mutex::default(),
        }))
    }

    /// The service: every route, and the document that describes them.
    pub fn app(&self, token: Token) -> App {
        let own = OpenApiRouter::new()
            .routes(routes!(status::status))
            .routes(routes!(status::assignments))
            .routes(routes!(status::cache))
            .routes(routes!(cluster::cluster))
            .routes(routes!(cluster::scale))
            .routes(routes!(events))
            .routes(routes!(charts::list))
            .routes(routes!(charts::chart))
            .routes(routes!(charts::rebaseline))
            .routes(routes!(alarms::list))
            .routes(routes!(alarms::show))
            .routes(routes!(alarms::acknowledge))
            .routes(routes!(chambers::list))
            .routes(routes!(chambers::show))
            .routes(routes!(chambers::import))
            .routes(routes!(contexts::list))
            .routes(routes!(contexts::report))
            .routes(routes!(intake::submit))
            .routes(routes!(dlq::list))
            .routes(routes!(dlq::show))
            .routes(routes!(dlq::replay))
            .routes(routes!(dlq::remove))
            .with_state(self.clone());
        let version = env!("CARGO_PKG_VERSION");
        Kit::new("Phalanx defender", version, Arc::new(self.clone()), token)
            .largest_body(LARGEST_BODY)
            .build(own)
    }

    /// The worker has started on that backend.
    pub fn attach<'a>(
        &'a self,
        defender: Arc<Defender>,
        backend: &'a dyn Backend,
        settings: &'a StoreConfig,
    ) -> BoxFuture<'a, Result<(), backend::Error>> {
        Box::pin(async move {
            let stores = Stores::open(backend, settings).await?;
            self.0.intake.open(defender.collector().clone().announcing(stores.assignments.clone()));
            *lock(&self.0.attached) = Some(Arc::new(Attached { defender, stores }));
            *lock(&self.0.waits_for) = None;
            Ok(())
        })
    }

    /// The worker has ended.
    pub fn detach(&self) {
        self.0.intake.close();
        *lock(&self.0.attached) = None;
    }

    /// The start waits for that.
    pub fn waits_for(&self, what: &str) {
        *lock(&self.0.waits_for) = Some(what.to_owned());
        self.0.events.publish("problem", json!({ "message": what }));
    }

    pub(crate) fn attached(&self) -> Result<Arc<Attached>, ApiError> {
        lock(&self.0.attached).clone().ok_or_else(|| {
            let waiting = lock(&self.0.waits_for).clone();
            let what = waiting.map_or_else(String::new, |what| format!(", it waits: {what}"));
            ApiError::unavailable(format!("the defender has not started yet{what}"))
        })
    }

    /// Whether everything goes round as of `now`, or what does not: the event loop, or a task of the pipeline.
    pub fn live_at(&self, now: Instant) -> Result<(), String> {
        // Without a worker there is nothing that could be stuck: the start waits, and says for what.
        let Ok(attached) = self.attached() else { return Ok(()) };
        let handle = attached.defender.handle();
        let stands_for = handle.time_since_iteration() + now.saturating_duration_since(Instant::now());
        let mut stuck = attached.defender.watchdog().stuck(now);
        if stands_for > PATIENCE && !handle.status().ended {
            stuck.insert(0, "the event loop".to_owned());
        }
        match stuck.is_empty() {
            true => Ok(()),
            false => Err(format!("no turn for {} s: {}", PATIENCE.as_secs(), stuck.join(", "))),
        }
    }

    pub(crate) fn pod_name(&self) -> &str {
        &self.0.pod_name
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.0.started.elapsed()
    }
}

impl FromRef<Api> for Intake {
    fn from_ref(api: &Api) -> Self {
        api.0.intake.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What happens, as a stream: `state`, `assignment`, `alarm` and `problem`. A client that comes back with `Last-Event-ID`
/// misses nothing of the last 1,000.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    tag = "fleet",
    responses((status = 200, body = String, content_type = "text/event-stream"))
)]
async fn events(State(api): State<Api>, headers: HeaderMap) -> impl IntoResponse {
    api.0.events.stream(&headers)
}

/// What is wrong with the store and with the broker, if something is.
async fn health(store: &dyn ChartStore, stores: &Stores) -> (Option<String>, Option<String>) {
    let asked = |answer: Result<Result<(), String>, _>| match answer {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error),
        Err(tokio::time::error::Elapsed { .. }) => Some(format!("no answer within {} s", PROBE.as_secs())),
    };
    let store = async { store.ping().await.map_err(|e| e.to_string()) };
    let broker = async { stores.assignments.get("current").await.map(drop).map_err(|e| e.to_string()) };
    let (store, broker) =
        tokio::join!(tokio::time::timeout(PROBE, store), tokio::time::timeout(PROBE, broker));
    (asked(store), asked(broker))
}

#[async_trait]
impl Probes for Api {
    fn live(&self) -> Result<(), String> {
        self.live_at(Instant::now())
    }

    async fn ready(&self) -> Readiness {
        let Ok(attached) = self.attached() else {
            let waits_for = lock(&self.0.waits_for).clone();
            return Readiness::not_ready(json!({ "state": "INITIALIZATION", "waitsFor": waits_for }));
        };
        let status = attached.defender.handle().status();
        let (store, broker) = health(&**attached.defender.store(), &attached.stores).await;
        let standby = status.role == Role::Standby;
        let holds = status.holder.is_some();
        let serves =
            holds && status.is_unfenced && status.map_version.0 > 0 && status.state != WorkerState::Degraded;
        let details = json!({
            "state": status.state.name(),
            "standby": standby,
            "idClaimed": holds,
            "assignmentReceived": status.map_version.0 > 0,
            "store": store.as_deref().unwrap_or("ok"),
            "broker": broker.as_deref().unwrap_or("ok"),
        });
        match store.is_none() && broker.is_none() && (standby || serves) && !status.ended {
            true => Readiness::ready(details),
            false => Readiness::not_ready(details),
        }
    }

    fn metrics(&self) -> String {
        self.0.metrics.text()
    }
}

impl Observer for Api {
    fn alarm(&self, alarm: &Alarm) {
        self.0.events.publish("alarm", alarm_json(alarm));
    }

    fn assignment(&self, added: &[Arc<str>], removed: &[Arc<str>]) {
        self.0.events.publish("assignment", json!({ "added": added, "removed": removed }));
    }

    fn state(&self, from: WorkerState, to: WorkerState) {
        self.0.events.publish("state", json!({ "from": from.name(), "to": to.name() }));
    }

    fn problem(&self, text: &str) {
        eprintln!("{} {text}", Timestamp::now().round(jiff::Unit::Second).unwrap_or_default());
        self.0.events.publish("problem", json!({ "message": text }));
    }
}
