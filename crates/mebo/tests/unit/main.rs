//! Tests that need nothing but the crate.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

#[path = "../common/mod.rs"]
mod common;

mod fixtures;
mod golden;
mod hostile;
mod independent;
mod legacy;
mod prefixes;
mod properties;
mod rules;
mod writer;
