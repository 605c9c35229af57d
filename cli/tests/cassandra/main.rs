//! Tests on a real Cassandra.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

#[path = "../util/mod.rs"]
mod util;

mod demo;
mod end_to_end;
mod ingest;
mod schema;
mod way_in;
