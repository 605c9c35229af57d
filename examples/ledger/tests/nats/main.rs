//! Tests on real NATS servers.

#[path = "../fleet/mod.rs"]
mod fleet;

mod faults;
mod halts;
mod ledger;
mod losses;
mod many;
