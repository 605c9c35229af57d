//! Tests on real NATS servers.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

#[path = "../common/mod.rs"]
mod common;

mod auth;
mod conformance;
mod groups;
mod outage;
mod settings;
