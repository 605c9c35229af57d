//! Where the demo takes place: in this process, or on real servers.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use phalanx_cluster::backend::{Backend, Embedded, Settings};
use phalanx_cluster_nats::Nats;
use phalanx_defender::store::cassandra::{Config, Replication};
use phalanx_defender::store::{Cassandra, ChartStore, Sqlite};
use tempfile::TempDir;

use crate::random;

/// Real servers, instead of what this process has within it.
#[derive(Args, Clone)]
pub(super) struct Servers {
    /// Coordinate at these NATS servers, separated by commas. They must serve no other fleet.
    #[arg(long, value_name = "URL", requires = "cassandra")]
    nats: Option<String>,
    /// Keep charts in this Cassandra: hosts, separated by commas. It gets a keyspace, which is removed in the end.
    #[arg(long, value_name = "HOSTS", requires = "nats")]
    cassandra: Option<String>,
}

/// What the defenders of the demo share.
pub(super) struct Ground {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) store: Arc<dyn ChartStore>,
    pub(super) settings: Settings,
    /// What is to be removed in the end, of the servers.
    made: Option<(Nats, Config)>,
    // Removed by itself.
    _folder: Option<TempDir>,
}

impl Ground {
    pub(super) async fn open(servers: &Servers) -> Result<Self> {
        match (&servers.nats, &servers.cassandra) {
            (Some(nats), Some(cassandra)) => Self::on_servers(nats, cassandra).await,
            _ => Self::here(),
        }
    }

    fn here() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self {
            backend: Arc::new(Embedded::in_memory()?),
            store: Arc::new(Sqlite::open(&folder.path().join("charts.db"))?),
            settings: Settings::default(),
            made: None,
            _folder: Some(folder),
        })
    }

    async fn on_servers(urls: &str, hosts: &str) -> Result<Self> {
        let nats = Nats::connect(&phalanx_cluster_nats::Config::new(urls)).await?;
        let name = format!("demo_{}", &random::hex()[..8]);
        let config = Config { keyspace: name.clone(), ..Config::new(hosts) };
        Cassandra::apply(&config, Some(&Replication::Everywhere(1))).await?;
        let store = Arc::new(Cassandra::connect(&config).await?);
        let mut settings = Settings::default();
        for bucket in [
            &mut settings.stable_ids,
            &mut settings.heartbeats,
            &mut settings.assignments,
            &mut settings.election,
            &mut settings.cursors,
        ] {
            bucket.name = format!("{name}-{}", bucket.name);
        }
        for log in [&mut settings.notifications, &mut settings.dead_letters, &mut settings.alarms] {
            log.name = format!("{name}-{}", log.name);
        }
        // A fleet that works there has a stream of these subjects already.
        nats.log(&settings.notifications)
            .await
            .context("the demo wants a NATS that serves no other fleet")?;
        let backend = Arc::new(nats.clone());
        Ok(Self { backend, store, settings, made: Some((nats, config)), _folder: None })
    }

    /// Removes what was made.
    pub(super) async fn clear(&self) -> Result<()> {
        if let Some((nats, cassandra)) = &self.made {
            nats.remove(&self.settings).await?;
            Cassandra::remove(cassandra).await?;
        }
        Ok(())
    }
}
