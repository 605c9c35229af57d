//! Tests on a real Cassandra.

#[path = "../fleet/mod.rs"]
mod fleet;

mod away;
mod crash_and_pause;
mod store;
mod two_workers;
