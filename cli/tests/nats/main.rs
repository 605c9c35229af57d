//! Tests on real NATS servers.

#[path = "../election_set/mod.rs"]
mod election_set;
#[path = "../util/mod.rs"]
mod util;

mod election_fleet;
mod variables;
