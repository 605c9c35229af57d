//! The HTTP API: how the engine stands, steering it, and what it has gathered.
#![allow(unused_qualifications, reason = "the macro that describes a route writes them")]

mod control;
mod records;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_etl::engine::Handle;
use phalanx_service::{App, Events, Kit, Token, Watchdog};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::keeper::Feeds;
use crate::metrics::Metrics;
use crate::store::Readers;

/// What handlers need. Clones are the same.
#[derive(Clone)]
pub(crate) struct Api {
    /// Every provider, in the order they start.
    pub(crate) ids: Vec<String>,
    pub(crate) dependencies: BTreeMap<String, Vec<String>>,
    pub(crate) feeds: Feeds,
    pub(crate) events: Events,
    pub(crate) readers: Readers,
    pub(crate) engine: Handle,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) watchdog: Watchdog,
}

pub(crate) fn app(api: Api, token: Token) -> App {
    let probes = Arc::new(api.clone());
    Kit::new("Phalanx ETL", env!("CARGO_PKG_VERSION"), probes, token).build(routes().with_state(api))
}

fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(state::tree))
        .routes(routes!(state::provider))
        .routes(routes!(control::start))
        .routes(routes!(control::pause))
        .routes(routes!(control::resume))
        .routes(routes!(control::stop))
        .routes(routes!(state::checkpoints))
        .routes(routes!(state::events))
        .routes(routes!(records::record))
        .routes(routes!(records::search))
        .routes(routes!(records::path))
}
