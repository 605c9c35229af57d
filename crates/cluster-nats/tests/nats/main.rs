//! Tests on real NATS servers.

#[path = "../common/mod.rs"]
mod common;

mod auth;
mod conformance;
mod outage;
mod settings;
