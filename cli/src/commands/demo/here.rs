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

use super::fleet::Asked;
use super::ground::Ground;

/// Dropped, it ends as kill -9 would end it: no farewell.
pub(super) struct Here {
    defender: Arc<Defender>,
    api: Api,
    server: Server,
}

impl Here {
    pub(super) async fn start(ground: &Ground, name: &str, size: u32) -> Result<Self> {
        let metrics = Metrics::default();
        let api = Api::new(name, metrics.clone());
        let server = Server::bind("127.0.0.1:0", api.app(Token::none()).router).await?;
        let usual = Options::default();
        let cluster =
            Config { fleet_size: Some(size), scale_window: Duration::from_secs(1), ..usual.cluster };
        let pod = Some((name.to_owned(), format!("uid-{name}")));
        let (settings, alarms) = (ground.settings.clone(), ground.alarms.clone());
        let options = Options { cluster, pod, metrics, settings, alarms, ..usual };
        let strategy = Arc::new(Holder::new(Strategy::parse(STRATEGY)?));
        let observer = Arc::new(api.clone());
        let (backend, store) = (ground.backend.clone(), ground.store.clone());
        let defender = Arc::new(Defender::start(backend, store, strategy, observer, options).await?);
        api.attach(defender.clone(), &*ground.backend, &ground.settings).await?;
        Ok(Self { defender, api, server })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(super) fn asked(&self) -> Asked {
        let statistics = self.defender.cache().statistics(Instant::now());
        Asked { hits: statistics.hits, misses: statistics.misses }
    }

    pub(super) async fn scale(&self, size: u32) -> Result<()> {
        Ok(self.defender.handle().scale(Some(size)).await?)
    }

    /// Leaves in good order.
    pub(super) async fn stop(self) {
        self.defender.shutdown().await;
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // The API holds the defender, too.
        self.api.detach();
    }
}
