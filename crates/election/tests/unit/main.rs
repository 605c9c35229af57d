//! Tests that need nothing but the crate.

#[path = "../alone/mod.rs"]
mod alone;
#[path = "../history/mod.rs"]
mod checker;

mod conformance;
mod history;
mod security;
mod services;
