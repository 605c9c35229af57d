//! A data folder that no defender runs on: this process has it for itself until it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use phalanx_cluster::backend::{Embedded, Settings, Stores};
use phalanx_defender::store::{Cassandra, ChartStore, Sqlite};

use crate::cassandra::PerhapsCassandraArgs;

/// Where charts and what goes with them are kept.
#[derive(Args)]
pub(crate) struct Place {
    /// The data folder of an embedded defender.
    #[arg(long, env = "DATA_DIR", value_name = "FOLDER")]
    pub(crate) data_dir: PathBuf,

    #[command(flatten)]
    cassandra: PerhapsCassandraArgs,
}

/// Where the folder's files are.
const CHARTS_FILE: &str = "charts.db";
const ADDRESS_FILE: &str = "api-address";

/// An open data folder, locked.
pub(crate) struct Local {
    pub(crate) backend: Arc<Embedded>,
    pub(crate) stores: Stores,
    pub(crate) store: Arc<dyn ChartStore>,
}

impl Place {
    /// Opens it, for this process alone.
    pub(crate) async fn open(self) -> anyhow::Result<Local> {
        let folder = &self.data_dir;
        let backend = match Embedded::open(folder) {
            Ok(backend) => Arc::new(backend),
            Err(error) => match running_service(folder) {
                Some(address) => {
                    bail!("a defender is running on {} ({address}); send it there", folder.display())
                }
                None => return Err(error.into()),
            },
        };
        let store: Arc<dyn ChartStore> = match self.cassandra.config()? {
            None => Arc::new(Sqlite::open(&folder.join(CHARTS_FILE))?),
            Some(config) => {
                let connected = Cassandra::connect(&config).await;
                Arc::new(
                    connected.with_context(|| format!("keyspace {} on {}", config.keyspace, config.hosts))?,
                )
            }
        };
        let stores = Stores::open(&*backend, &Settings::default()).await?;
        Ok(Local { backend, stores, store })
    }
}

/// Where the service listens that has the folder. Its note may be left of one that was killed: what counts is who has the
/// lock.
fn running_service(folder: &Path) -> Option<String> {
    let address = std::fs::read_to_string(folder.join(ADDRESS_FILE)).ok()?;
    Some(address.trim().to_owned()).filter(|address| !address.is_empty())
}
