//! Errors of the application.

use std::io;
use std::path::PathBuf;

use phalanx_cluster::StartError;
use phalanx_cluster::backend::{self, Retry};
use phalanx_service::BindError;
use thiserror::Error;

use crate::store::StoreError;
use crate::strategy::StrategyError;
use crate::worker::DefenderError;

/// A failed attempt to open stores or to start a worker on them.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The coordination backend failed.
    #[error(transparent)]
    Backend(#[from] backend::Error),
    /// The chart store failed.
    #[error("{location}: {error}")]
    Charts {
        /// Location of the store, for operators.
        location: String,
        /// Error of the store.
        error: StoreError,
    },
    /// The worker could not be started.
    #[error(transparent)]
    Defender(#[from] DefenderError),
}

impl ConnectError {
    /// Returns whether the same attempt may succeed later, because a server was unavailable.
    pub fn is_retryable(&self) -> bool {
        let is_unavailable = |error: &StoreError| matches!(error, StoreError::Unavailable(_));
        match self {
            Self::Backend(error)
            | Self::Defender(
                DefenderError::Backend(error) | DefenderError::Worker(StartError::Backend(error)),
            ) => error.retry() != Retry::Useless,
            Self::Charts { error, .. } | Self::Defender(DefenderError::Store(error)) => is_unavailable(error),
            // The list of chambers comes from the store, which may answer later.
            Self::Defender(DefenderError::Worker(StartError::Partitions(_))) => true,
            Self::Defender(DefenderError::Worker(_)) => false,
        }
    }
}

/// An application that could not be started.
#[derive(Debug, Error)]
pub enum AppError {
    /// The data folder could not be created.
    #[error("the data folder {} cannot be made", folder.display())]
    DataFolder {
        /// Path of the folder.
        folder: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// A file of the data folder could not be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The strategy file could not be read.
    #[error("the strategy file {} cannot be read", path.display())]
    ReadStrategy {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The strategy is invalid.
    #[error("{}:{error}", path.display())]
    Strategy {
        /// Path of the file.
        path: PathBuf,
        /// First error in it.
        error: StrategyError,
    },
    /// The HTTP address could not be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A store or a server refused.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unavailable_server_is_retryable() {
        let charts = |error| ConnectError::Charts { location: "there".to_owned(), error };
        assert!(charts(StoreError::Unavailable("silent".to_owned())).is_retryable());
        let refused = charts(StoreError::Refused("another version".to_owned()));
        assert!(!refused.is_retryable());
        assert_eq!(refused.to_string(), "there: the chart store refuses: another version");
        let failed = backend::Error::Failed { what: "get".to_owned(), reason: "timeout".to_owned() };
        assert!(ConnectError::from(failed.clone()).is_retryable());
        let started = DefenderError::Worker(StartError::Backend(failed));
        assert!(ConnectError::from(started).is_retryable());
        assert!(!ConnectError::from(DefenderError::Worker(StartError::NoHandler)).is_retryable());
    }
}
