//! The deciding part: no clock, no IO.

mod state;

pub use state::{CalculatorState, WorkerState};
