//! Tests that start processes and kill them.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

#[path = "../election_set/mod.rs"]
mod election_set;
#[path = "../../../crates/election/tests/history/mod.rs"]
mod history;
#[path = "../util/mod.rs"]
mod util;

mod election;
mod election_faults;
