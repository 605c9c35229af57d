//! Tests that need nothing but the crate.

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
