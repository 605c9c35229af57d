//! Tests on real NATS servers.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

#[path = "../fleet/mod.rs"]
mod fleet;

mod faults;
mod halts;
mod ledger;
mod losses;
mod many;
