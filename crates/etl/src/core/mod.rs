//! What decides. Commands and facts go in with `now`, effects come out; nothing here reads a clock, does IO or waits.
//!
//! - [`registry`]: the set of providers, checked as a whole, and the order they start in;
//! - [`provider`]: one provider's run;
//! - [`orchestrator`]: the machine above all providers;
//! - [`broker`]: permits, and when they are taken back;
//! - [`backoff`]: when to try again, and when to give up;
//! - [`schedule`] and [`timetable`]: when a feed is read again, and when it is stale.
//!
//! Time is a [`Duration`](std::time::Duration) since the Unix epoch, because deadlines outlive the process.

pub mod backoff;
pub mod broker;
mod event;
pub mod orchestrator;
pub mod provider;
pub mod registry;
pub mod schedule;
pub mod timetable;

pub use event::{EventKind, Outcome};
