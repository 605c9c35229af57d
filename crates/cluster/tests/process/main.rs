//! Tests that start processes of their own.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

#[path = "../fleet/mod.rs"]
mod fleet;

mod kill;
mod restart;
