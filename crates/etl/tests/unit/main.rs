//! Tests that need nothing but the crate.

#[path = "../util/mod.rs"]
mod util;

mod dependencies;
mod feeds;
mod hostile;
mod machines;
mod mirror;
mod mutations;
mod names;
mod permits_under_load;
mod providers;
mod slow_store;
