//! Opens what coordination and charts are kept in.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use phalanx_cluster::backend::{self, Backend, Embedded, Retry};
use phalanx_cluster_nats::Nats;
use phalanx_defender::store::{Cassandra, ChartStore, Sqlite, StoreError};

use crate::data_folder::DataFolder;
use crate::settings::places::{Charts, Coordination, Places};

/// How long is waited before a start is tried again; that doubles up to the second.
const AGAIN: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(30);
/// How often it is looked for what is too old.
const LET_GO: Duration = Duration::from_secs(600);

/// What defenders meet at.
pub(crate) enum Meeting {
    Embedded(Arc<Embedded>),
    Nats(Arc<dyn Backend>),
}

impl Meeting {
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Embedded(embedded) => embedded.clone(),
            Self::Nats(nats) => nats.clone(),
        }
    }

    pub(crate) async fn close(&self) {
        if let Self::Embedded(embedded) = self {
            embedded.close().await;
        }
    }
}

/// Where charts are kept.
pub(crate) enum Shelf {
    Sqlite(Sqlite),
    Cassandra(Arc<Cassandra>),
}

impl Shelf {
    pub(crate) fn store(&self) -> Arc<dyn ChartStore> {
        match self {
            Self::Sqlite(sqlite) => Arc::new(sqlite.clone()),
            Self::Cassandra(cassandra) => cassandra.clone(),
        }
    }

    /// Lets go of what is too old, now and then. Cassandra does that by itself.
    pub(crate) async fn keep_young(&self) -> Infallible {
        loop {
            if let Self::Sqlite(sqlite) = self {
                // What cannot be deleted now is deleted the next time.
                while sqlite.expire(Timestamp::now()).await.is_ok_and(|deleted| deleted > 0) {}
            }
            tokio::time::sleep(LET_GO).await;
        }
    }

    pub(crate) async fn close(&self) {
        if let Self::Sqlite(sqlite) = self {
            sqlite.close().await;
        }
    }
}

/// Why it did not work.
pub(crate) enum Trouble {
    /// It does not answer: it may later.
    Away(anyhow::Error),
    /// It answers, and does not want this.
    Refused(anyhow::Error),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Away(error.into()),
            StoreError::Refused(_) => Self::Refused(error.into()),
        }
    }
}

impl From<backend::Error> for Trouble {
    fn from(error: backend::Error) -> Self {
        match error.retry() {
            Retry::Safe | Retry::AfterReading => Self::Away(error.into()),
            Retry::Useless => Self::Refused(error.into()),
        }
    }
}

/// Opens both.
pub(crate) async fn connect(places: &Places) -> Result<(Meeting, Shelf), Trouble> {
    let meeting = match &places.coordination {
        Coordination::Embedded(folder) => Meeting::Embedded(Arc::new(Embedded::open(folder)?)),
        Coordination::Nats(config) => Meeting::Nats(Arc::new(Nats::connect(config).await?)),
    };
    Ok((meeting, open_charts(&places.charts).await?))
}

impl Trouble {
    /// An error of the store, with where that is.
    fn of_store(error: StoreError, charts: &Charts) -> Self {
        let place = match charts {
            Charts::Sqlite(folder) => DataFolder::at(folder).charts().display().to_string(),
            Charts::Cassandra(config) => format!("keyspace {} on {}", config.keyspace, config.hosts),
        };
        match Self::from(error) {
            Self::Away(error) => Self::Away(error.context(place)),
            Self::Refused(error) => Self::Refused(error.context(place)),
        }
    }

    /// What went wrong, for whom it makes no difference whether it may work later.
    pub(crate) fn into_error(self) -> anyhow::Error {
        match self {
            Self::Away(error) | Self::Refused(error) => error,
        }
    }
}

/// Opens the charts.
pub(crate) async fn open_charts(charts: &Charts) -> Result<Shelf, Trouble> {
    let opened = match charts {
        Charts::Sqlite(folder) => Sqlite::open(&DataFolder::at(folder).charts()).map(Shelf::Sqlite),
        Charts::Cassandra(config) => {
            Cassandra::connect(config).await.map(|store| Shelf::Cassandra(Arc::new(store)))
        }
    };
    opened.map_err(|error| Trouble::of_store(error, charts))
}

/// Tries until it works. What does not answer is tried again for as long as it takes; what refuses is an error.
pub(crate) async fn patiently<T>(
    mut attempt: impl AsyncFnMut() -> Result<T, Trouble>,
    told: impl Fn(&str),
) -> Result<T> {
    let mut wait = AGAIN;
    loop {
        match attempt().await {
            Ok(started) => return Ok(started),
            Err(Trouble::Refused(error)) => return Err(error),
            Err(Trouble::Away(error)) => {
                told(&format!("{error:#}"));
                eprintln!("INITIALIZATION: {error:#}; trying again in {} s", wait.as_secs());
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(AT_MOST);
            }
        }
    }
}
