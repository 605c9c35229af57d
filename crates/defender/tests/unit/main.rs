//! Tests that need nothing but the crate.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

#[path = "../fleet/mod.rs"]
mod fleet;

mod api;
mod app;
mod cache_eviction;
mod from_csv_to_alarm;
mod messages;
mod metrics;
mod moves;
mod pipeline;
mod remembering;
mod retention;
mod rules;
mod store_away;
mod store_sqlite;
mod strategy_reload;
mod two_workers;
mod weights;
