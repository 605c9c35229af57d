//! Tests that need nothing but the crate.

#[path = "../fleet/mod.rs"]
mod fleet;

mod conformance;
mod embedded;
mod faults;
mod machines;
mod shell;
mod shell_faults;
mod shell_hooks;
mod shell_rude;
