//! A defender of the demo in this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use phalanx_cluster::core::Config;
use phalanx_defender::Metrics;
use phalanx_defender::api::Api;
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::worker::{Defender, Options};
use phalanx_fab::STRATEGY;
use phalanx_service::{Server, Token};

use crate::environment::Environment;
use crate::fleet::CacheCounters;

/// A defender in this process. Dropping it ends it as `kill -9` would, without a leave record.
pub(crate) struct InProcessDefender {
    defender: Arc<Defender>,
    api: Api,
    server: Server,
}

impl InProcessDefender {
    pub(crate) async fn start(environment: &Environment, name: &str, size: u32) -> Result<Self> {
        let metrics = Metrics::default();
        let api = Api::new(name, metrics.clone());
        let server = Server::bind("127.0.0.1:0", api.app(Token::none()).router).await?;
        let defaults = Options::default();
        let cluster =
            Config { fleet_size: Some(size), scale_window: Duration::from_secs(1), ..defaults.cluster };
        let pod = Some((name.to_owned(), format!("uid-{name}")));
        let (settings, alarms) = (environment.settings.clone(), environment.alarms.clone());
        let options = Options { cluster, pod, metrics, settings, alarms, ..defaults };
        let strategy = Arc::new(Holder::new(Strategy::parse(STRATEGY)?));
        let observer = Arc::new(api.clone());
        let (backend, store) = (environment.backend.clone(), environment.store.clone());
        let defender = Arc::new(Defender::start(backend, store, strategy, observer, options).await?);
        api.attach(defender.clone(), &*environment.backend, &environment.settings).await?;
        Ok(Self { defender, api, server })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn cache_counters(&self) -> CacheCounters {
        let statistics = self.defender.cache().statistics(Instant::now());
        CacheCounters { hits: statistics.hits, misses: statistics.misses }
    }

    pub(crate) async fn scale(&self, size: u32) -> Result<()> {
        Ok(self.defender.handle().scale(Some(size)).await?)
    }

    /// Shuts it down.
    pub(crate) async fn stop(self) {
        self.defender.shutdown().await;
    }
}

impl Drop for InProcessDefender {
    fn drop(&mut self) {
        // The API holds the defender, too.
        self.api.detach();
    }
}
