//! The coordination library of Phalanx.
//!
//! [`core`] decides; it is pure: events in, effects out, time passed in.

pub mod core;
pub mod names;
