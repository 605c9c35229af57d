//! Tests on real NATS servers.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

#[path = "../election_set/mod.rs"]
mod election_set;
#[path = "../util/mod.rs"]
mod util;

mod election_fleet;
mod groups;
mod variables;
