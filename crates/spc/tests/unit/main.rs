//! Tests that need nothing but the crate.

mod arl;
mod equations;
mod references;
mod streaming;
