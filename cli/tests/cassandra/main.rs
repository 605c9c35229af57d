//! Tests on a real Cassandra.

#[path = "../util/mod.rs"]
mod util;

mod demo;
mod end_to_end;
mod ingest;
mod schema;
mod way_in;
