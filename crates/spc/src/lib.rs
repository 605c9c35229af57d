//! Statistical process control: from traces to judged indicators. Pure: no IO, no clock, no global state.
//!
//! - [`equation`]: the language of indicators, `mean(RF_POWER[10s..50s])`: checked when loaded, compiled once;
//! - [`chart`]: control charts, whole ([`chart::analyse`]) and a point at a time ([`chart::Monitor`]);
//! - [`rules`]: Western Electric 1–4 and Nelson 1–8;
//! - [`capability`]: Cp, Cpk, Pp, Ppk with confidence intervals;
//! - [`constants`]: d2, d3, c4 and the factors made of them;
//! - [`numeric`]: sums, moments and quantiles that stay accurate.
//!
//! Formulas, and when to use which, are in `docs/spc.md`.

pub mod capability;
pub mod chart;
pub mod constants;
mod distribution;
pub mod equation;
mod linear;
pub mod numeric;
pub mod rules;
