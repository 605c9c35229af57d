//! Tests that need nothing but the crate.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

#[path = "../util/mod.rs"]
mod util;

mod dependencies;
mod feeds;
mod hostile;
mod layers;
mod machines;
mod mirror;
mod mutations;
mod names;
mod permits_under_load;
mod providers;
mod slow_store;
