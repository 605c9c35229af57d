//! Fault detection for semiconductor equipment: a finished run of a chamber comes in as a *T-chart* (its traces), and
//! leaves as one point on each of its *U-charts* (univariate control charts), judged, with alarms where it must.
//!
//! - [`record`]: what is stored, row by row;
//! - [`store`]: where it is stored;
//! - [`cache`]: what a worker remembers of it;
//! - [`weights`]: what chambers weigh in the balance of the fleet.

pub mod cache;
pub mod record;
pub mod store;
pub mod weights;
