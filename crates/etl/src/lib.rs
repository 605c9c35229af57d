//! The ETL engine of Phalanx: a hierarchical state machine that runs security data providers.
//!
//! - [`core`] decides, without IO.

pub mod core;
mod state;

pub use state::{MacroState, ProviderState};
