//! The ETL engine as a service: every feed is read when its schedule says so, whoever has not completed for too long is
//! reported, and all of it can be seen and steered over HTTP.
//!
//! The engine has its own threads ([`Engine::serve`](phalanx_etl::engine::Engine::serve)); one task here, the keeper,
//! keeps the [timetable](phalanx_etl::core::timetable) and passes on what happened. Handlers read the store.

mod api;
mod keeper;
mod metrics;
mod service;
mod store;

pub use keeper::default_plan;
pub use metrics::NAMES as METRICS;
pub use service::{Config, Error, Log, Service};
