//! The deciding part: no clock, no IO.

pub mod planner;
mod state;

pub use state::{CalculatorState, WorkerState};
