//! Fault detection for semiconductor equipment: a finished run of a chamber comes in as a *T-chart* (its traces), and
//! leaves as one point on each of its *U-charts* (univariate control charts), judged, with alarms where it must.
//!
//! - [`notification`]: what stands in a chamber's log;
//! - [`names`]: the stored and exported names of a defender fleet;
//! - [`strategy`]: which charts which chambers get, by a file that is checked and can change while it is in use;
//! - [`traces`]: from stored traces to the columns that equations need, and from files to stored traces;
//! - [`judge`]: from values to judged points, alarms, and what the charts remember;
//! - [`record`]: what is stored, row by row;
//! - [`store`]: where it is stored;
//! - [`cache`]: what a worker remembers of its chambers;
//! - [`pipeline`]: from a message to rows and alarms, around all of these;
//! - [`weights`]: what chambers weigh in the balance of the fleet;
//! - [`collector`]: the way in;
//! - [`report`]: what one run came to;
//! - [`dead_letter`]: messages that were given up;
//! - [`worker`]: all of it as a worker of a fleet, and its [`Metrics`];
//! - [`Observer`]: its events;
//! - [`api`]: its HTTP API;
//! - [`app`]: the application around it, from opening the stores to a graceful shutdown.
//!
//! Everything but stores, cache and sources is pure: no clock, no IO, the same answer whenever it is asked.

pub mod api;
pub mod app;
pub mod cache;
pub mod collector;
pub mod dead_letter;
mod digest;
pub mod judge;
mod metrics;
pub mod names;
pub mod notification;
mod observer;
pub mod pipeline;
pub mod record;
pub mod report;
pub mod store;
pub mod strategy;
pub mod traces;
pub mod weights;
pub mod worker;

pub use metrics::Metrics;
pub use observer::Observer;
