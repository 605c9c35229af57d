//! What one worker counts.

use crate::{names, pipeline};

/// The metrics of one worker, coordination and pipeline, in one registry of its own. Clones are the same metrics.
///
/// They are registered here and once: a start that is tried again goes on counting where it was.
#[derive(Clone, Debug)]
pub struct Metrics {
    cluster: phalanx_cluster::Metrics,
    pipeline: pipeline::Metrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let cluster = phalanx_cluster::Metrics::new(&names::names());
        let pipeline = pipeline::Metrics::new(cluster.registry());
        Self { cluster, pipeline }
    }
}

impl Metrics {
    /// What the coordination counts; its registry has all of them.
    pub fn cluster(&self) -> &phalanx_cluster::Metrics {
        &self.cluster
    }

    /// What the pipeline counts.
    pub fn pipeline(&self) -> &pipeline::Metrics {
        &self.pipeline
    }

    /// All of them, in the text format of Prometheus.
    pub fn text(&self) -> String {
        self.cluster.text()
    }
}
