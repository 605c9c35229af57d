//! A defender as an application: opens its stores, retries until its servers answer, serves HTTP and shuts down gracefully.
//!
//! [`run`] is what `phalanx defender` runs, and [`run_collector`] is what `phalanx collector` runs; a program that embeds
//! one of them passes it a [`Shutdown`](phalanx_service::Shutdown) and gets the same behavior. [`LocalStores`] ingests one run
//! without a running defender, and [`OpenConnections`] opens the same stores for other uses.
//!
//! ```no_run
//! # #[tokio::main] async fn main() -> Result<(), phalanx_defender::app::AppError> {
//! use std::sync::Arc;
//! use phalanx_defender::app::{self, ChartLocation, Config, Connections, Coordination};
//! use phalanx_defender::worker::Options;
//! use phalanx_service::Shutdown;
//!
//! let config = Config {
//!     connections: Connections {
//!         coordination: Coordination::Embedded("data".into()),
//!         charts: ChartLocation::Sqlite("data".into()),
//!     },
//!     options: Options::default(),
//!     http_addr: "127.0.0.1:0".to_owned(),
//!     token: None,
//!     strategy_file: "strategy.toml".into(),
//!     log: Arc::new(|line| eprintln!("{line}")),
//! };
//! app::run(config, Shutdown::on_termination().expect("signals")).await
//! # }
//! ```

mod collector;
mod connections;
mod data_folder;
mod defender;
mod error;
mod local;
mod random;
mod retry;

use std::sync::Arc;

pub use self::collector::{CollectorConfig, run_collector};
pub use self::connections::{
    ChartLocation, Connections, Coordination, OpenBackend, OpenChartStore, OpenConnections,
};
pub use self::data_folder::DataFolder;
pub use self::defender::{Config, run};
pub use self::error::{AppError, ConnectError};
pub use self::local::{LocalError, LocalRun, LocalStores};
pub use self::random::random_hex;

/// Receiver of lines for operators.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;
