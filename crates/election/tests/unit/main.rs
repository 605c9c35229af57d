//! Tests that need nothing but the crate.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

#[path = "../alone/mod.rs"]
mod alone;
#[path = "../history/mod.rs"]
mod checker;

mod conformance;
mod history;
mod security;
mod services;
