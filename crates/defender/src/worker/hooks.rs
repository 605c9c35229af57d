//! Hooks of the worker: the cache and the estimates follow the assignment, then the observer is notified.

use std::sync::Arc;

use async_trait::async_trait;
use phalanx_cluster::core::WorkerState;
use phalanx_cluster::{HookError, Hooks, OwnedPartition, Problem};

use crate::Observer;
use crate::cache::Cache;
use crate::record::Chamber;
use crate::weights::SharedEstimator;

/// Forwards the worker's events to the cache, the estimates and the observer.
pub(super) struct EventForwarder {
    pub(super) cache: Arc<Cache>,
    pub(super) estimator: SharedEstimator,
    pub(super) observer: Arc<dyn Observer>,
}

#[async_trait]
impl Hooks for EventForwarder {
    async fn on_assignment_changed(
        &self,
        added: Vec<OwnedPartition>,
        removed: Vec<Arc<str>>,
    ) -> Result<(), HookError> {
        for chamber in removed.iter().filter_map(|partition| Chamber::of_partition(partition)) {
            self.cache.forget(&chamber);
            self.estimator.lock().forget(&chamber);
        }
        let added: Vec<Arc<str>> = added.into_iter().map(|owned| owned.partition).collect();
        self.observer.assignment(&added, &removed);
        Ok(())
    }

    async fn on_state_changed(&self, from: WorkerState, to: WorkerState) -> Result<(), HookError> {
        self.observer.state(from, to);
        Ok(())
    }

    async fn on_error(&self, problem: Problem) -> Result<(), HookError> {
        self.observer.problem(&problem.to_string());
        Ok(())
    }
}
