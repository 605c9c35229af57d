//! The simulated broker behind the backend traits of the library: the same buckets and the same log, with bytes as values.
//!
//! - [`Server`] executes requests on its state; it has no clock and no tasks;
//! - [`SimBackend`] implements the traits: each operation is a [`Request`] that a [`Transport`] carries to a server;
//! - [`Direct`] carries requests without faults; the shell mode has a transport with faults.

mod client;
mod direct;
mod request;
mod server;
mod store_bucket;
mod store_log;

pub use client::SimBackend;
pub(crate) use client::{Transport, WakeUps, WatchEvents};
pub use direct::Direct;
pub(crate) use request::{Expect, Request, Response};
pub(crate) use server::{Change, Server};
