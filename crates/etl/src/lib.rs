//! The ETL engine of Phalanx: a hierarchical state machine that runs security data providers.
//!
//! - [`core`] decides, without IO: the machines, the permits, back-off, the order of things;
//! - [`providers`] know the upstream formats, [`source`] how bytes are had;
//! - [`store`] keeps records, and everything needed to go on after a crash, in one SQLite file;
//! - [`engine`] is the shell: one thread per provider, one that writes, one that coordinates.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "only the deciding modules are pure; they turn these lints on"
)]

#[warn(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod core;
pub mod engine;
pub mod lookup;
pub mod providers;
mod record;
pub mod source;
mod state;
pub mod store;
mod text;
mod urn;

pub use record::{Item, Link, Record, Reject, SourceRef, Verdict};
pub use state::{MacroState, ProviderState};
pub use urn::{Urn, UrnError};
