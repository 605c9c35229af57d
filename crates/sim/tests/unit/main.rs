//! Tests that need nothing but the crate.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

#[path = "../common/mod.rs"]
mod common;

mod conformance;
mod guards;
mod guards_messages;
mod scenarios_agent;
mod scenarios_crash;
mod scenarios_documents;
mod scenarios_identity;
mod scenarios_messages;
mod scenarios_names;
mod scenarios_restart;
mod scenarios_rollout;
