//! Where the demo takes place: in this process, or on real servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use phalanx_cluster::FleetView;
use phalanx_cluster::backend::{Backend, Embedded, LogConfig, StoreConfig, Stores, open_log};
use phalanx_cluster_nats::Nats;
use phalanx_defender::names::{alarm_log, store_config};
use phalanx_defender::store::cassandra::{Config, Replication};
use phalanx_defender::store::{Cassandra, ChartStore, Sqlite};
use phalanx_fab::STRATEGY;
use tempfile::TempDir;

use crate::random;

/// Real servers, instead of what this process has within it.
#[derive(Args, Clone)]
pub(super) struct Servers {
    /// Coordinate at these NATS servers, separated by commas. They must serve no other fleet.
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// Keep charts in this Cassandra: hosts, separated by commas. It gets a keyspace of its own, which is removed in the
    /// end.
    #[arg(long, value_name = "HOSTS")]
    cassandra: Option<String>,
    /// Run every defender as a process of its own; needs --nats and --cassandra.
    #[arg(long)]
    pub(super) processes: bool,
}

impl Servers {
    /// What of it does not go together, if something does not.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        match (&self.nats, &self.cassandra, self.processes) {
            (Some(_), Some(_), _) | (None, None, false) => None,
            (_, _, true) => Some(
                "--processes needs --nats URL and --cassandra HOSTS: processes meet at NATS, and take over each other's \
                 charts, so they need a store that all of them reach",
            ),
            (Some(_), None, false) => Some("--nats goes together with --cassandra HOSTS"),
            (None, Some(_), false) => Some("--cassandra goes together with --nats URL"),
        }
    }
}

/// What the demo makes is named after it: what an earlier one has left behind is known by that.
const NAME: &str = "phalanx-demo";
/// Where a demo notes its keyspace, among the assignments.
const KEYSPACE: &str = "demo-keyspace";
/// A worker without a heartbeat for this long has crashed: three intervals.
const SILENT_AFTER: Duration = Duration::from_secs(6);

/// What the defenders of the demo share.
pub(super) struct Ground {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) store: Arc<dyn ChartStore>,
    pub(super) settings: StoreConfig,
    pub(super) alarms: LogConfig,
    pub(super) servers: Option<OnServers>,
    folder: TempDir,
}

/// How processes find it, and what is to be removed in the end.
pub(super) struct OnServers {
    nats: Nats,
    pub(super) urls: String,
    pub(super) cassandra: Config,
}

impl Ground {
    pub(super) async fn open(servers: &Servers) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("strategy.toml"), STRATEGY)?;
        match (&servers.nats, &servers.cassandra) {
            (Some(nats), Some(cassandra)) => Self::on_servers(nats, cassandra, folder).await,
            _ => Ok(Self {
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
        // First, so that nothing is left behind where a fleet works: it has a stream of these subjects already.
        open_log(&nats, &settings.log, &settings.names)
            .await
            .context("the demo wants a NATS that serves no other fleet; `cargo xtask up nats` starts one")?;
        nobody_is_there(&nats, &settings).await?;
        let in_keyspace = |keyspace: String| {
            let cassandra = Config { keyspace, ..Config::new(hosts) };
            OnServers { nats: nats.clone(), urls: urls.to_owned(), cassandra }
        };
        if let Some(left) = left_keyspace(&nats, &settings).await? {
            in_keyspace(left)
                .remove(&settings, &alarms)
                .await
                .context("an earlier demo has left things behind there")?;
        }
        let made = in_keyspace(format!("phalanx_demo_{}", &random::hex()[..8]));
        let keyspace = made.cassandra.keyspace.clone();
        nats.bucket(&settings.assignments).await?.put(KEYSPACE, keyspace.into()).await?;
        Cassandra::apply(&made.cassandra, Some(&Replication::Everywhere(1))).await?;
        let store = Arc::new(Cassandra::connect(&made.cassandra).await?);
        Ok(Self { backend: Arc::new(nats), store, settings, alarms, servers: Some(made), folder })
    }

    /// The strategy of the demo, as a file.
    pub(super) fn strategy_file(&self) -> PathBuf {
        self.folder.path().join("strategy.toml")
    }

    /// Removes what was made, once all have left.
    pub(super) async fn clear(&self) -> Result<()> {
        match &self.servers {
            Some(servers) => servers.remove(&self.settings, &self.alarms).await,
            None => Ok(()),
        }
    }
}

impl OnServers {
    async fn remove(&self, settings: &StoreConfig, alarms: &LogConfig) -> Result<()> {
        // Each for itself: what one server keeps is no reason to leave things at the other.
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

/// Refuses to start while another demo runs there: two demos would take over each other's chambers.
async fn nobody_is_there(nats: &Nats, settings: &StoreConfig) -> Result<()> {
    let fleet = FleetView::read(&Stores::open(nats, settings).await?).await?;
    if fleet.members.iter().any(|member| !member.has_left && member.heartbeat_age < SILENT_AFTER) {
        bail!(
            "another demo runs there, or was killed a few seconds ago: wait for its end, or name another NATS"
        );
    }
    Ok(())
}

/// The keyspace of an earlier demo that was killed, if there was one. Each has its own: several may share a Cassandra.
async fn left_keyspace(nats: &Nats, settings: &StoreConfig) -> Result<Option<String>> {
    let note = nats.bucket(&settings.assignments).await?.get(KEYSPACE).await?;
    Ok(note.map(|note| String::from_utf8_lossy(&note.value).into_owned()))
}
