//! Publishing a new map.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::CalculatorState;
use crate::facts::Facts;
use crate::io::{Condition, Notice, PlanSummary, Purpose};
use crate::outbox::Outbox;
use crate::planner::Mode;
use crate::types::{Key, Lifecycle, Value, Version, WorkerId};

use super::map_builder::{MapHeader, MapInput};
use super::{Controller, Phase};

/// The workers of a new map, and the way to plan it.
pub(super) struct MapRequest {
    pub(super) workers: BTreeSet<WorkerId>,
    /// In an emergency: the workers that may receive orphaned partitions.
    pub(super) receivers: BTreeSet<WorkerId>,
    pub(super) mode: Mode,
    pub(super) fleet_size: Option<u32>,
}

impl Controller {
    /// Plans a map and writes it. Without a partition list there is nothing to plan.
    pub(super) fn publish(&mut self, request: &MapRequest, facts: &Facts, outbox: &mut Outbox) {
        invariant!(self.phase == Phase::Running, "one map is written at a time");
        invariant!(!request.workers.is_empty(), "a map has workers");
        invariant!(request.receivers.is_subset(&request.workers), "receivers are workers of the map");
        let Some(wanted) = self.desired.as_ref().map(|desired| &desired.partitions) else { return };
        let current = self.current_map();
        let lifecycle = match current {
            Some(map) if !self.restarting => map.lifecycle.next(),
            _ => Lifecycle::ColdStart.next(),
        };
        let input = MapInput {
            current,
            wanted,
            workers: &request.workers,
            receivers: &request.receivers,
            mode: request.mode,
            options: &facts.config.planner,
        };
        let header = MapHeader {
            version: self.next_version(facts),
            epoch: self.epoch,
            lifecycle,
            fleet_size: request.fleet_size,
        };
        invariant!(current.is_none_or(|map| map.version < header.version), "versions grow");
        let (map, planned) = input.build(header);
        let window = self.window.map(|window| (window.kind, facts.now.saturating_sub(window.opened)));
        outbox.notify(Notice::Planned(PlanSummary { window, ..planned }));
        let condition =
            self.map.as_ref().map_or(Condition::Absent, |(_, revision)| Condition::Revision(*revision));
        let proposed = Arc::new(map);
        let request_id = outbox.write(Purpose::PublishMap, Key::Map, Value::Map(proposed.clone()), condition);
        self.phase = Phase::Publishing { request_id, proposed };
    }

    /// Ends the window and the restart: a new map is stored.
    pub(super) fn on_published(&mut self, facts: &Facts) {
        self.restarting = false;
        self.window = None;
        self.pending = 0;
        self.transition(facts.now, CalculatorState::Idle, "published");
    }

    /// Returns a version above that of the map and above every version that any worker has seen or applied: a lost map must
    /// not return with a version that a worker already knows.
    pub(super) fn next_version(&self, facts: &Facts) -> Version {
        let seen = facts.roster.iter().flat_map(|(_, seen)| [seen.map_version, seen.applied_version]);
        let seen = seen.chain([self.min_version]).filter(|_| facts.policy().heeds_seen_versions());
        let highest = seen.chain(self.map_version()).max().unwrap_or_default();
        highest.max(self.highest_cursor(facts)).next()
    }

    /// Returns the highest version that any worker has seen in a cursor.
    pub(super) fn highest_cursor(&self, facts: &Facts) -> Version {
        let seen = facts.roster.iter().map(|(_, seen)| seen.cursor_version);
        seen.filter(|_| facts.policy().heeds_seen_versions()).max().unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "publication_test.rs"]
mod tests;
