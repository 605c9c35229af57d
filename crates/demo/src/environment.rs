//! Environment of the demo: stores in this process, or on real servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use phalanx_cluster::FleetView;
use phalanx_cluster::backend::{Backend, Embedded, LogConfig, StoreConfig, Stores, open_log};
use phalanx_cluster_nats::Nats;
use phalanx_defender::app::random_hex;
use phalanx_defender::names::{alarm_log, store_config};
use phalanx_defender::store::cassandra::{Config, Replication};
use phalanx_defender::store::{Cassandra, ChartStore, Sqlite};
use phalanx_fab::STRATEGY;
use tempfile::TempDir;

/// Real servers for the demo.
#[derive(Clone, Debug)]
pub struct Servers {
    /// Addresses of NATS, separated by commas.
    pub nats: String,
    /// Hosts of Cassandra, separated by commas.
    pub cassandra: String,
}

/// Prefix of every name that the demo creates, so that a later demo finds what a killed one left behind.
const NAME: &str = "phalanx-demo";
/// Key of the demo's keyspace in the bucket of the assignments.
const KEYSPACE_KEY: &str = "demo-keyspace";
/// A worker without a heartbeat for this long has crashed: three intervals.
const SILENT_AFTER: Duration = Duration::from_secs(6);

/// Stores that the defenders of the demo share.
pub(crate) struct Environment {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) store: Arc<dyn ChartStore>,
    pub(crate) settings: StoreConfig,
    pub(crate) alarms: LogConfig,
    /// Connections to real servers, if there are some.
    pub(crate) servers: Option<ServerEnvironment>,
    folder: TempDir,
}

/// Connections to real servers: for child processes, and for cleaning up.
pub(crate) struct ServerEnvironment {
    nats: Nats,
    pub(crate) urls: String,
    pub(crate) cassandra: Config,
}

impl Environment {
    pub(crate) async fn open(servers: Option<&Servers>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("strategy.toml"), STRATEGY)?;
        match servers {
            Some(Servers { nats, cassandra }) => Self::on_servers(nats, cassandra, folder).await,
            None => Ok(Self {
                backend: Arc::new(Embedded::in_memory()?),
                store: Arc::new(Sqlite::open(&folder.path().join("charts.db"))?),
                settings: store_config(),
                alarms: alarm_log(),
                servers: None,
                folder,
            }),
        }
    }

    async fn on_servers(urls: &str, hosts: &str, folder: TempDir) -> Result<Self> {
        let nats = Nats::connect(&phalanx_cluster_nats::Config::new(urls)).await?;
        let (settings, alarms) = (settings(), alarms());
        // The first request fails where another fleet works, which has a stream of these subjects: nothing is left behind.
        open_log(&nats, &settings.log, &settings.names)
            .await
            .context("the demo wants a NATS that serves no other fleet; `cargo xtask up nats` starts one")?;
        ensure_unused(&nats, &settings).await?;
        let in_keyspace = |keyspace: String| {
            let cassandra = Config { keyspace, ..Config::new(hosts) };
            ServerEnvironment { nats: nats.clone(), urls: urls.to_owned(), cassandra }
        };
        if let Some(keyspace) = leftover_keyspace(&nats, &settings).await? {
            in_keyspace(keyspace)
                .remove(&settings, &alarms)
                .await
                .context("an earlier demo has left things behind there")?;
        }
        let made = in_keyspace(format!("phalanx_demo_{}", &random_hex()[..8]));
        let keyspace = made.cassandra.keyspace.clone();
        nats.bucket(&settings.assignments).await?.put(KEYSPACE_KEY, keyspace.into()).await?;
        Cassandra::apply(&made.cassandra, Some(&Replication::Everywhere(1))).await?;
        let store = Arc::new(Cassandra::connect(&made.cassandra).await?);
        Ok(Self { backend: Arc::new(nats), store, settings, alarms, servers: Some(made), folder })
    }

    /// Returns the path of the strategy file.
    pub(crate) fn strategy_file(&self) -> PathBuf {
        self.folder.path().join("strategy.toml")
    }

    /// Removes everything that the demo created at the servers, after all defenders have left.
    pub(crate) async fn clean_up(&self) -> Result<()> {
        match &self.servers {
            Some(servers) => servers.remove(&self.settings, &self.alarms).await,
            None => Ok(()),
        }
    }
}

impl ServerEnvironment {
    async fn remove(&self, settings: &StoreConfig, alarms: &LogConfig) -> Result<()> {
        // The cleanup of one server does not depend on the other.
        let removed = self.nats.remove(settings, &[alarms]).await;
        Cassandra::remove(&self.cassandra).await?;
        Ok(removed?)
    }
}

fn settings() -> StoreConfig {
    let mut settings = store_config();
    for bucket in settings.buckets_mut() {
        bucket.name = format!("{NAME}-{}", bucket.name);
    }
    for log in [&mut settings.log, &mut settings.dead_letters] {
        log.name = format!("{NAME}-{}", log.name);
    }
    settings
}

fn alarms() -> LogConfig {
    let log = alarm_log();
    LogConfig { name: format!("{NAME}-{}", log.name), ..log }
}

/// Fails while another demo runs there: two demos would take over each other's chambers.
async fn ensure_unused(nats: &Nats, settings: &StoreConfig) -> Result<()> {
    let fleet = FleetView::read(&Stores::open(nats, settings).await?).await?;
    if fleet.members.iter().any(|member| !member.has_left && member.heartbeat_age < SILENT_AFTER) {
        bail!(
            "another demo runs there, or was killed a few seconds ago: wait for its end, or name another NATS"
        );
    }
    Ok(())
}

/// Returns the keyspace of an earlier demo that was killed, if there was one. Each demo has its own, because several may
/// share a Cassandra.
async fn leftover_keyspace(nats: &Nats, settings: &StoreConfig) -> Result<Option<String>> {
    let note = nats.bucket(&settings.assignments).await?.get(KEYSPACE_KEY).await?;
    Ok(note.map(|note| String::from_utf8_lossy(&note.value).into_owned()))
}
