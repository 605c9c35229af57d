//! A collector from its start to its graceful shutdown.

use futures_util::future::BoxFuture;
use phalanx_cluster::backend::{StoreConfig, Stores};
use phalanx_service::{Server, Shutdown, Token};

use super::retry::retry_until_available;
use super::{AppError, ConnectError, Connections, Log, OpenConnections};
use crate::api::CollectorApi;
use crate::collector::Collector;

/// Settings of a collector application.
pub struct CollectorConfig {
    /// Locations of the stores.
    pub connections: Connections,
    /// Names and settings of buckets and logs.
    pub settings: StoreConfig,
    /// Address of the HTTP API.
    pub http_addr: String,
    /// Write token; without one, all runs are rejected.
    pub token: Option<String>,
    /// Receiver of lines for operators.
    pub log: Log,
}

/// Runs a collector until a stop is requested.
pub fn run_collector(
    config: CollectorConfig,
    shutdown: Shutdown,
) -> BoxFuture<'static, Result<(), AppError>> {
    Box::pin(async move {
        let CollectorConfig { connections, settings, http_addr, token, log } = config;
        let token = token.map_or_else(Token::none, |token| Token::new(&token));
        let api = CollectorApi::default();
        let server = Server::bind(&http_addr, api.app(token).router).await?;
        log(&format!("listening on {}", server.url()));
        let opened = tokio::select! {
            () = shutdown.requested() => None,
            opened = retry_until_available(
                &log,
                || open(&connections, &settings),
                |error| api.waits_for(error),
            ) => Some(opened?),
        };
        if let Some((open, stores)) = opened {
            let store = open.charts.store();
            let collector =
                Collector::new(store.clone(), stores.log.clone()).announcing(stores.assignments.clone());
            api.open(collector, store, stores);
            shutdown.requested().await;
            log("leaving");
            // Requests in progress end first.
            server.stop().await;
            open.close().await;
        }
        Ok(())
    })
}

async fn open(
    connections: &Connections,
    settings: &StoreConfig,
) -> Result<(OpenConnections, Stores), ConnectError> {
    let open = OpenConnections::open(connections).await?;
    let stores = Stores::open(&*open.backend.backend(), settings).await?;
    Ok((open, stores))
}
