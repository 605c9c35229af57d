//! Where the demo takes place: in this process, or on real servers.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use jiff::Timestamp;
use phalanx_cluster::backend::{Backend, Embedded, Entry, StoreConfig};
use phalanx_cluster::codec::{Bucket, Codec, Decoded, parse_key};
use phalanx_cluster::core::types::Value;
use phalanx_cluster_nats::Nats;
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
/// Whoever was heard within so many microseconds is there: three heartbeats.
const HEARD_US: u64 = 6_000_000;

/// What the defenders of the demo share.
pub(super) struct Ground {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) store: Arc<dyn ChartStore>,
    pub(super) settings: StoreConfig,
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
                settings: StoreConfig::default(),
                servers: None,
                folder,
            }),
        }
    }

    async fn on_servers(urls: &str, hosts: &str, folder: TempDir) -> Result<Self> {
        let nats = Nats::connect(&phalanx_cluster_nats::Config::new(urls)).await?;
        let settings = settings();
        // First, so that nothing is left behind where a fleet works: it has a stream of these subjects already.
        nats.log(&settings.notifications)
            .await
            .context("the demo wants a NATS that serves no other fleet; `cargo xtask up nats` starts one")?;
        nobody_is_there(&nats, &settings).await?;
        let in_keyspace = |keyspace: String| {
            let cassandra = Config { keyspace, ..Config::new(hosts) };
            OnServers { nats: nats.clone(), urls: urls.to_owned(), cassandra }
        };
        if let Some(left) = left_keyspace(&nats, &settings).await? {
            in_keyspace(left)
                .remove(&settings)
                .await
                .context("an earlier demo has left things behind there")?;
        }
        let made = in_keyspace(format!("phalanx_demo_{}", &random::hex()[..8]));
        let keyspace = made.cassandra.keyspace.clone();
        nats.bucket(&settings.assignments).await?.put(KEYSPACE, keyspace.into()).await?;
        Cassandra::apply(&made.cassandra, Some(&Replication::Everywhere(1))).await?;
        let store = Arc::new(Cassandra::connect(&made.cassandra).await?);
        Ok(Self { backend: Arc::new(nats), store, settings, servers: Some(made), folder })
    }

    /// The strategy of the demo, as a file.
    pub(super) fn strategy_file(&self) -> PathBuf {
        self.folder.path().join("strategy.toml")
    }

    /// Removes what was made, once all have left.
    pub(super) async fn clear(&self) -> Result<()> {
        match &self.servers {
            Some(servers) => servers.remove(&self.settings).await,
            None => Ok(()),
        }
    }
}

impl OnServers {
    async fn remove(&self, settings: &StoreConfig) -> Result<()> {
        // Each for itself: what one server keeps is no reason to leave things at the other.
        let removed = self.nats.remove(settings).await;
        Cassandra::remove(&self.cassandra).await?;
        Ok(removed?)
    }
}

fn settings() -> StoreConfig {
    let mut settings = StoreConfig::default();
    for bucket in [
        &mut settings.stable_ids,
        &mut settings.heartbeats,
        &mut settings.assignments,
        &mut settings.election,
        &mut settings.cursors,
    ] {
        bucket.name = format!("{NAME}-{}", bucket.name);
    }
    for log in [&mut settings.notifications, &mut settings.dead_letters, &mut settings.alarms] {
        log.name = format!("{NAME}-{}", log.name);
    }
    settings
}

/// Two demos would take each other's chambers.
async fn nobody_is_there(nats: &Nats, settings: &StoreConfig) -> Result<()> {
    let now = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or_default();
    let codec = Codec::default();
    let is_there = |beat: &Entry| {
        let key = parse_key(Bucket::Heartbeats, &beat.key);
        let said = key.and_then(|key| codec.decode(&key, &beat.value).ok());
        let left = matches!(said, Some(Decoded::Value(Value::Heartbeat(beat))) if beat.left);
        !left && now.saturating_sub(beat.stored_at) < HEARD_US
    };
    if nats.bucket(&settings.heartbeats).await?.entries().await?.values().any(is_there) {
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
