//! Tests on real NATS servers.

mod orphans;
mod server;
