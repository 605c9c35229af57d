//! The Election Agent: leaderships as leases over gRPC, kept by one, three or five nodes that agree by Raft; and its client.
//!
//! - [`leases`] decides: commands in, replies and a new state out; [`deadlines`] knows when a term is over; both without a clock
//!   of their own;
//! - [`names`] and [`token`]: what may be asked for, and who is believed;
//! - `raft`: how the commands are replicated, and the file they are kept in;
//! - [`node`]: one member of the set, which answers from its own state or asks the one that leads;
//! - `server` and `http`: what it listens on; [`agent`] puts all of it together;
//! - [`client`]: for whoever wants to lead; [`backend`]: the same for the coordination library.
//!
//! Two leaders of one election never overlap: a lease ends by a command that names the very term it saw run out, a term is
//! counted from later than its holder counts it, and whoever comes to lead the nodes counts every term anew.

pub mod agent;
pub mod backend;
pub mod client;
pub mod deadlines;
mod http;
pub mod leases;
mod metrics;
pub mod names;
pub mod node;
mod raft;
pub mod security;
mod server;
pub mod token;

pub use metrics::NAMES as METRICS;

/// The service with tokens and epochs, and those of operators and of nodes among each other, as they go over the wire.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    reason = "made by the build; the protocol files say what is what"
)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/phalanx.election.v1.rs"));
}

/// The shape of the public Election Agent, as it goes over the wire.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    reason = "made by the build; the protocol file says what is what"
)]
pub mod public {
    include!(concat!(env!("OUT_DIR"), "/grpc.election_agent.v1.rs"));
}

/// What the reflection service tells.
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
