//! The coordination library of Phalanx.
//!
//! [`core`] decides; it is pure: events in, effects out, time passed in.
//! [`backend`] keeps what is decided: traits, the embedded backend, and what tests need.

pub mod backend;
pub mod codec;
pub mod core;
pub mod names;
mod shell;

pub use shell::*;
