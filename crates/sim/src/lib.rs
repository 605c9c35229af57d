//! A whole cluster in one thread, on a virtual clock.
//!
//! The [`World`] runs many whole [`WorkerCore`](phalanx_cluster_core::WorkerCore)s against a simulated broker: the code that
//! production runs. Only time, faults and the start of processes are driven from outside. It is composed of
//!
//! - `network`: links with outages, and faults of single requests;
//! - `broker`: values with compare-and-swap, and the log; `backend` shows it through the backend traits of the library;
//! - `fleet`: processes and the clocks of their machines;
//! - `traffic`: partitions and what they publish; `store` and `handler`: what workers do with it;
//! - `oracle`: an independent record, and one checker for each invariant of the design.
//!
//! [`chaos`] runs it with seeded `faults`. In [`chaos::Mode::Shell`] the processes are whole workers (`shell`).
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

mod backend;
mod batch;
mod broker;
pub mod chaos;
mod event;
mod failure;
mod faults;
mod fleet;
mod handler;
mod network;
mod oracle;
mod queue;
mod rng;
mod rules;
mod setup;
mod shell;
mod store;
mod traffic;
mod world;

pub use backend::{Direct, SimBackend};
pub use batch::{Totals, run_many};
pub use broker::MessageKind;
pub use event::ScheduledAction;
pub use failure::FailureReport;
pub use faults::{Fault, Injection, RequestFault};
pub use fleet::ProcessId;
pub use oracle::{Counts, Violation};
pub use phalanx_cluster_core::ProtocolRule;
pub use rules::{EnvironmentRule, Rule, UnknownRule};
pub use setup::Setup;
pub use world::{Publication, World};

/// A fast map that has the same order in every run.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;
