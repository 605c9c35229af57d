//! Tests on a real Cassandra.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

#[path = "../fleet/mod.rs"]
mod fleet;

mod away;
mod crash_and_pause;
mod store;
mod two_workers;
