//! The ETL engine of Phalanx: a hierarchical state machine that runs security data providers.
//!
//! - [`core`] decides, without IO: the machines, the permits, back-off, the order of things;
//! - [`providers`] know the upstream formats, [`source`] how bytes are had;
//! - [`store`] keeps records, and everything needed to go on after a crash, in one SQLite file;
//! - [`engine`] is the shell: one thread per provider, one that writes, one that coordinates.

pub mod core;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the shell: it has clocks, files and threads"
)]
pub mod engine;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the shell: it has clocks, files and threads"
)]
pub mod providers;
mod record;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the shell: it has clocks, files and threads"
)]
pub mod source;
mod state;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the shell: it has clocks, files and threads"
)]
pub mod store;
mod text;
mod urn;

pub use record::{Item, Link, Record, Reject, Verdict};
pub use state::{MacroState, ProviderState};
pub use urn::{Urn, UrnError};
