//! What the tests of Phalanx share: real servers, started for a test and gone after it.
//!
//! - [`nats`]: a throw-away nats-server, one node or a cluster of three, that can be killed, stopped, continued and
//!   restarted;
//! - [`cassandra`]: one real Cassandra for a test run, with a keyspace for each test;
//! - [`provision`]: how the servers get onto this machine, with [`provision::Error`]s that say what is missing;
//! - [`process`]: child processes that never outlive the test run;
//! - [`proxy`]: links between processes that can be cut, each direction on its own;
//! - [`machine`]: compares a state machine with a table written out a second time;
//! - [`measure`]: how benchmarks take time;
//! - [`requirements`]: the names that the requirements fix;
//! - [`shared()`]: large reference data next to the repository, where it is present;
//! - [`wait`]: waiting for a condition.

pub mod cassandra;
pub mod machine;
pub mod measure;
pub mod nats;
mod net;
pub mod process;
pub mod provision;
pub mod proxy;
mod scratch;
mod shared;
pub mod wait;

pub use shared::{requirements, shared};
