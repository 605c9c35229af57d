//! The ETL engine of Phalanx: a hierarchical state machine that runs security data providers.

mod state;

pub use state::{MacroState, ProviderState};
