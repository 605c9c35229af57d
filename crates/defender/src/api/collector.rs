//! The HTTP API of a collector: the way in, and nothing else.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use phalanx_cluster::backend::Stores;
use phalanx_service::{App, Kit, Probes, Readiness, Token};
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Intake, LARGEST_BODY, health, intake, lock};
use crate::collector::Collector;
use crate::store::ChartStore;

/// The API of a collector. Clones are the same API.
#[derive(Clone, Default)]
pub struct CollectorApi(Arc<Inner>);

#[derive(Default)]
struct Inner {
    intake: Intake,
    behind: Mutex<Option<(Arc<dyn ChartStore>, Stores)>>,
    /// What the start waits for.
    waits_for: Mutex<Option<String>>,
}

impl CollectorApi {
    /// The service: its routes, and the document that describes them.
    pub fn app(&self, token: Token) -> App {
        let own = OpenApiRouter::new().routes(routes!(intake::submit)).with_state(self.0.intake.clone());
        Kit::new("Phalanx collector", env!("CARGO_PKG_VERSION"), Arc::new(self.clone()), token)
            .largest_body(LARGEST_BODY)
            .build(own)
    }

    /// Runs go to that collector, which needs that store and that broker.
    pub fn open(&self, collector: Collector, store: Arc<dyn ChartStore>, stores: Stores) {
        *lock(&self.0.behind) = Some((store, stores));
        *lock(&self.0.waits_for) = None;
        self.0.intake.open(collector);
    }

    /// The start waits for that.
    pub fn waits_for(&self, what: &str) {
        *lock(&self.0.waits_for) = Some(what.to_owned());
    }
}

#[async_trait]
impl Probes for CollectorApi {
    fn live(&self) -> Result<(), String> {
        Ok(())
    }

    async fn ready(&self) -> Readiness {
        let behind = lock(&self.0.behind).clone();
        let Some((store, stores)) = behind else {
            let waits_for = lock(&self.0.waits_for).clone();
            return Readiness::not_ready(json!({ "waitsFor": waits_for }));
        };
        let (store, broker) = health(&*store, &stores).await;
        let details = json!({
            "store": store.as_deref().unwrap_or("ok"),
            "broker": broker.as_deref().unwrap_or("ok"),
        });
        match store.is_none() && broker.is_none() {
            true => Readiness::ready(details),
            false => Readiness::not_ready(details),
        }
    }

    fn metrics(&self) -> String {
        self.0.intake.metrics()
    }
}
