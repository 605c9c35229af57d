//! Tests that need nothing but the crate.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

mod arl;
mod equations;
mod references;
mod streaming;
