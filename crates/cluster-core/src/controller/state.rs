//! Publishing the state of the leader, for all workers to show and for the next leader to inherit.

use std::sync::Arc;
use std::time::Duration;

use crate::facts::Facts;
use crate::io::{Condition, Purpose};
use crate::outbox::Outbox;
use crate::types::{ClusterState, Key, Time, Value};

use super::Controller;

/// The state that was published last.
#[derive(Debug, Default)]
pub(super) struct StatePublication {
    published: Option<(ClusterState, Time)>,
    /// Whether the watch has returned it: every other value after that is a late write.
    is_echoed: bool,
    /// Whether a late write has replaced it.
    is_overwritten: bool,
}

impl StatePublication {
    /// Whether nothing was published yet.
    pub(super) fn is_first(&self) -> bool {
        self.published.is_none()
    }

    /// Handles the stored state as the watch shows it.
    pub(super) fn on_watched(&mut self, state: &ClusterState) {
        let is_own = self
            .published
            .as_ref()
            .is_some_and(|(own, _)| (own.epoch, own.serial) == (state.epoch, state.serial));
        self.is_overwritten |= self.is_echoed && !is_own;
        self.is_echoed |= is_own;
    }

    fn next_serial(&self) -> u64 {
        self.published.as_ref().map_or(1, |(own, _)| own.serial + 1)
    }

    /// Whether `state` must be written. The rest of a window or grace period grows old, and a worker that joins meanwhile
    /// cannot know how old, so such a state is repeated.
    fn needs_write(&self, state: &ClusterState, now: Time, interval: Duration) -> bool {
        let is_timed = state.window.is_some() || !state.grace_periods.is_empty();
        self.is_overwritten
            || self.published.as_ref().is_none_or(|(own, at)| {
                is_timed && now.saturating_sub(*at) >= interval
                    || own.state != state.state
                    || own.version != state.version
                    || own.window.map(|(kind, _)| kind) != state.window.map(|(kind, _)| kind)
                    || !own.grace_periods.keys().eq(state.grace_periods.keys())
            })
    }
}

impl Controller {
    /// Publishes the state of this leader if it has changed.
    pub(super) fn publish_state(&mut self, facts: &Facts, outbox: &mut Outbox) {
        if let Some((map, _)) = &self.map {
            let imbalanced = self.is_imbalanced(map, facts);
            self.imbalance = Some((map.version, imbalanced));
        }
        let left = |until: Time| until.saturating_sub(facts.now);
        let state = ClusterState {
            state: self.worker_state(),
            epoch: self.epoch,
            version: self.map_version().unwrap_or_default().max(self.min_version),
            serial: self.state.next_serial(),
            window: self.window.map(|window| (window.kind, left(window.ends))),
            grace_periods: self.grace_periods.iter().map(|(&id, &until)| (id, left(until))).collect(),
        };
        if self.state.needs_write(&state, facts.now, facts.config.heartbeat_interval) {
            let value = Value::ClusterState(Arc::new(state.clone()));
            outbox.write(Purpose::WriteState, Key::ClusterState, value, Condition::None);
            self.state = StatePublication {
                published: Some((state, facts.now)),
                is_echoed: false,
                is_overwritten: false,
            };
        }
    }
}

#[cfg(test)]
#[path = "state_test.rs"]
mod tests;
