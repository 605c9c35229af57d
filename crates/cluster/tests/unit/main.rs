//! Tests that need nothing but the crate.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

#[path = "../fleet/mod.rs"]
mod fleet;

mod conformance;
mod embedded;
mod faults;
mod machines;
mod shell;
mod shell_faults;
mod shell_hooks;
mod shell_rude;
mod stores;
