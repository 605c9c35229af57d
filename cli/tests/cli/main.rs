//! Tests that run the binary.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

#[path = "../../../crates/etl/tests/util/mod.rs"]
mod mirror;
#[path = "../util/mod.rs"]
mod util;

mod commands;
mod defender;
mod demo;
mod etl;
mod etl_interrupt;
mod etl_kill;
mod etl_serve;
mod fsm;
mod ingest;
mod mebo;
mod plan;
mod readme;
mod schema;
mod sim;
mod spc;
mod strategy;
mod variables;
