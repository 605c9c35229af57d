//! A whole cluster in one thread, on a virtual clock.
//!
//! The [`World`] runs many whole [`WorkerCore`](phalanx_cluster_core::WorkerCore)s against a simulated [`Broker`]: the very
//! code that production runs. Only time, faults and the starting of processes are driven from outside.
//!
//! ```
//! use phalanx_cluster_core::types::Time;
//! use phalanx_sim::{Setup, World};
//!
//! let mut world = World::new(Setup::default());
//! world.start();
//! world.start();
//! world.run_until(Time::from_secs(31));
//! let maps = world.publications();
//! assert_eq!((maps[0].second, maps[0].version, maps[0].workers), (30, 1, 2));
//! ```

mod batch;
mod broker;
pub mod chaos;
mod failure;
mod faults;
mod handler;
mod log;
mod oracle;
mod process;
mod queue;
mod rng;
mod rules;
mod store;
mod world;

pub use batch::{Totals, run_many};
pub use broker::Broker;
pub use failure::FailureReport;
pub use faults::{Fault, Injection, RequestFault};
pub use log::MessageKind;
pub use oracle::{Counts, Violation};
pub use phalanx_cluster_core::ProtocolRule;
pub use rules::{EnvironmentRule, Rule, UnknownRule};
pub use world::{ProcessId, Publication, ScheduledAction, Setup, World};

/// Quick, and in the same order in every run.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;
