//! What a service says of its own health.

use async_trait::async_trait;
use serde_json::Value;

/// Whether a service should be given work, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Readiness {
    pub(crate) ready: bool,
    pub(crate) details: Value,
}

impl Readiness {
    /// It should. `details` is an object with whatever helps to understand it.
    pub fn ready(details: Value) -> Self {
        Self { ready: true, details }
    }

    /// It should not, and `details` says why.
    pub fn not_ready(details: Value) -> Self {
        Self { ready: false, details }
    }
}

/// What the probes and the metrics of a service answer.
#[async_trait]
pub trait Probes: Send + Sync + 'static {
    /// Fails if the process should be restarted, with the name of what is stuck.
    fn live(&self) -> Result<(), String>;

    /// Whether it should be given work.
    async fn ready(&self) -> Readiness;

    /// The metrics, in the text format of Prometheus.
    fn metrics(&self) -> String;
}
