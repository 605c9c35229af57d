//! Fault detection for semiconductor equipment: a finished run of a chamber comes in as a *T-chart* (its traces), and
//! leaves as one point on each of its *U-charts* (univariate control charts), judged, with alarms where it must.
//!
//! - [`record`]: what is stored, row by row;
//! - [`store`]: where it is stored.

pub mod record;
pub mod store;
