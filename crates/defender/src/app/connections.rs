//! Opens the coordination backend and the chart store.

use std::path::PathBuf;
use std::sync::Arc;

use phalanx_cluster::backend::{Backend, Embedded};
#[cfg(feature = "nats")]
use phalanx_cluster_nats::{self as nats, Nats};

use super::{ConnectError, DataFolder};
#[cfg(feature = "cassandra")]
use crate::store::{Cassandra, cassandra};
use crate::store::{ChartStore, Sqlite};

/// Locations of the coordination backend and the chart store.
#[derive(Clone, Debug)]
pub struct Connections {
    /// Location of the coordination backend.
    pub coordination: Coordination,
    /// Location of the chart store.
    pub charts: ChartLocation,
}

/// Location of the coordination backend.
#[derive(Clone, Debug)]
pub enum Coordination {
    /// In this process, stored in a data folder.
    Embedded(PathBuf),
    /// NATS JetStream.
    #[cfg(feature = "nats")]
    Nats(Box<nats::Config>),
}

/// Location of the chart store.
#[derive(Clone, Debug)]
pub enum ChartLocation {
    /// A file in this data folder.
    Sqlite(PathBuf),
    /// Apache Cassandra.
    #[cfg(feature = "cassandra")]
    Cassandra(Box<cassandra::Config>),
}

impl ChartLocation {
    /// Returns the location for operators.
    fn describe(&self) -> String {
        match self {
            Self::Sqlite(folder) => DataFolder::at(folder).charts().display().to_string(),
            #[cfg(feature = "cassandra")]
            Self::Cassandra(config) => format!("keyspace {} on {}", config.keyspace, config.hosts),
        }
    }
}

/// An open coordination backend.
pub enum OpenBackend {
    /// The backend of this process.
    Embedded(Arc<Embedded>),
    /// A connection to NATS.
    #[cfg(feature = "nats")]
    Nats(Arc<Nats>),
}

impl OpenBackend {
    /// Opens the backend at that location.
    pub async fn open(coordination: &Coordination) -> Result<Self, ConnectError> {
        Ok(match coordination {
            Coordination::Embedded(folder) => Self::Embedded(Arc::new(Embedded::open(folder)?)),
            #[cfg(feature = "nats")]
            Coordination::Nats(config) => Self::Nats(Arc::new(Nats::connect(config).await?)),
        })
    }

    /// Returns the backend for a worker.
    pub fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Embedded(embedded) => embedded.clone(),
            #[cfg(feature = "nats")]
            Self::Nats(nats) => nats.clone(),
        }
    }

    async fn close(&self) {
        match self {
            Self::Embedded(embedded) => embedded.close().await,
            #[cfg(feature = "nats")]
            Self::Nats(_) => {}
        }
    }
}

/// An open chart store.
pub enum OpenChartStore {
    /// A database file.
    Sqlite(Sqlite),
    /// A session with Cassandra.
    #[cfg(feature = "cassandra")]
    Cassandra(Arc<Cassandra>),
}

impl OpenChartStore {
    /// Opens the store at that location.
    pub async fn open(location: &ChartLocation) -> Result<Self, ConnectError> {
        let opened = match location {
            ChartLocation::Sqlite(folder) => Sqlite::open(&DataFolder::at(folder).charts()).map(Self::Sqlite),
            #[cfg(feature = "cassandra")]
            ChartLocation::Cassandra(config) => {
                Cassandra::connect(config).await.map(|store| Self::Cassandra(Arc::new(store)))
            }
        };
        opened.map_err(|error| ConnectError::Charts { location: location.describe(), error })
    }

    /// Returns the store for a worker.
    pub fn store(&self) -> Arc<dyn ChartStore> {
        match self {
            Self::Sqlite(sqlite) => Arc::new(sqlite.clone()),
            #[cfg(feature = "cassandra")]
            Self::Cassandra(cassandra) => cassandra.clone(),
        }
    }

    async fn close(&self) {
        match self {
            Self::Sqlite(sqlite) => sqlite.close().await,
            #[cfg(feature = "cassandra")]
            Self::Cassandra(_) => {}
        }
    }
}

/// The coordination backend and the chart store, open.
pub struct OpenConnections {
    /// The coordination backend.
    pub backend: OpenBackend,
    /// The chart store.
    pub charts: OpenChartStore,
}

impl OpenConnections {
    /// Opens both.
    pub async fn open(connections: &Connections) -> Result<Self, ConnectError> {
        let backend = OpenBackend::open(&connections.coordination).await?;
        Ok(Self { backend, charts: OpenChartStore::open(&connections.charts).await? })
    }

    /// Closes both: pending writes end, and files are released.
    pub async fn close(&self) {
        self.charts.close().await;
        self.backend.close().await;
    }
}
