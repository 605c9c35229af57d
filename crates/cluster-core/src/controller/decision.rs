//! Deciding when to calculate a map: windows for planned changes, immediately after a crash.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::CalculatorState;
use crate::facts::Facts;
use crate::outbox::Outbox;
use crate::planner::Mode;
use crate::topology::{Topology, TopologyInput};
use crate::trigger::{Decision, TriggerInput, decide};
use crate::types::{AssignmentMap, PartitionList, Version, WorkerId};
use crate::unlisted::DesiredPartitions;

use super::Controller;
use super::map_builder::{MapInput, same_partitions};
use super::publication::MapRequest;

/// The partitions that the next map should have, and the inputs that they were derived from.
#[derive(Debug)]
pub(super) struct DesiredMap {
    listed: Arc<PartitionList>,
    version: Option<Version>,
    changes: u64,
    pub(super) partitions: DesiredPartitions,
    /// Whether the map has other partitions or weights.
    differs: bool,
}

impl Controller {
    /// Derives the partitions that a map should have: the list, adopted partitions, and removed ones that are not drained
    /// yet.
    pub(super) fn update_desired(&mut self, facts: &Facts) {
        let Some(listed) = &facts.partitions else { return };
        let (version, changes) = (self.map_version(), self.unlisted.changes());
        let is_current = self.desired.as_ref().is_some_and(|desired| {
            Arc::ptr_eq(&desired.listed, listed) && desired.version == version && desired.changes == changes
        });
        if is_current {
            return;
        }
        let map = self.current_map();
        let partitions = if facts.config.consumes_log {
            self.unlisted.desired_partitions(listed, map)
        } else {
            DesiredPartitions { partitions: listed.clone(), adopted: BTreeSet::new() }
        };
        let differs = map.is_some_and(|map| !same_partitions(map, &partitions.partitions));
        self.desired = Some(DesiredMap { listed: listed.clone(), version, changes, partitions, differs });
    }

    /// Returns the workers as this leader sees them, and the fleet size in force.
    pub(super) fn topology(&self, facts: &Facts) -> (Topology, Option<u32>) {
        let map = self.current_map();
        let fleet_size = facts.fleet_size(map);
        let input = TopologyInput {
            map,
            fleet_size,
            inherited: &self.inherited_grace_periods,
            observed_long_enough: !self.restarting && facts.watched() >= facts.config.cold_start_window,
        };
        (Topology::new(&input, facts), fleet_size)
    }

    /// Acts on a crash immediately; otherwise decides about planned changes.
    pub(super) fn decide(
        &mut self,
        topology: &Topology,
        size: Option<u32>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) {
        self.suspects.retain(|id| topology.crashed.contains(&id));
        if !facts.config.crash_immediate || topology.crashed.is_empty() {
            self.decide_planned(topology, size, facts, outbox);
            return;
        }
        // A planned calculation would have to know the outcome of these checks, so it waits.
        for &id in &topology.crashed {
            let incarnation = facts.roster.get(id).map(|seen| seen.incarnation).unwrap_or_default();
            self.suspects.suspect(id, incarnation, facts, outbox);
        }
        let standby = facts.roster.has_standby(facts.config.echo_limit(), &facts.clock);
        if size.is_some() && standby && self.suspects.has_confirmed() {
            self.suspects.free_for_standby(facts.now + facts.config.standby_wait(), outbox);
        }
        let dead = |id: &WorkerId| self.suspects.is_confirmed_dead(*id, facts.now);
        let dead: BTreeSet<WorkerId> = topology.crashed.iter().copied().filter(dead).collect();
        if !dead.is_empty() {
            self.redistribute(topology, &dead, size, facts, outbox);
        }
    }

    fn decide_planned(&mut self, topology: &Topology, size: Option<u32>, facts: &Facts, outbox: &mut Outbox) {
        if self.calculator.state() == CalculatorState::Emergency {
            // Its map was refused, and the silent workers have been heard since.
            self.transition(facts.now, CalculatorState::Idle, "the crash undid itself");
        }
        let Some(differs) = self.desired.as_ref().map(|desired| desired.differs) else { return };
        let target = topology.target();
        let present = target.len() - topology.missing.len() - topology.grace_periods.len();
        let pending = self
            .current_map()
            .map_or(present, |map| map.workers.symmetric_difference(&target).count() + usize::from(differs));
        let input = self.trigger_input(topology, size, facts);
        match decide(facts.now, self.window, input, &facts.config) {
            Decision::Idle => {
                self.restarting = self.restarting && input.missing;
                self.window = None;
                self.pending = 0;
                if self.calculator.state() != CalculatorState::Idle {
                    self.transition(facts.now, CalculatorState::Idle, "the change undid itself");
                }
            }
            Decision::Wait(window) => {
                invariant!(window.opened <= facts.now && facts.now < window.ends, "{window:?} is open");
                self.window = Some(window);
                self.pending = pending;
                if self.calculator.state() == CalculatorState::Idle {
                    self.transition(facts.now, CalculatorState::Scaling, "a window is open");
                }
            }
            Decision::Calculate => {
                // A worker that is still missing at the end of the window gets nothing.
                let workers: BTreeSet<WorkerId> = target.difference(&topology.missing).copied().collect();
                if workers.is_empty() {
                    return;
                }
                if self.calculator.state() == CalculatorState::Idle {
                    self.transition(facts.now, CalculatorState::Scaling, "no window needed");
                }
                if self.calculator.state() == CalculatorState::Scaling {
                    self.transition(facts.now, CalculatorState::Rebalancing, "the window ended");
                }
                let receivers = workers.clone();
                let mode = Mode::Planned;
                self.publish(&MapRequest { workers, receivers, mode, fleet_size: size }, facts, outbox);
            }
        }
    }

    fn trigger_input(&self, topology: &Topology, size: Option<u32>, facts: &Facts) -> TriggerInput {
        let target = topology.target();
        let present = target.len() - topology.missing.len() - topology.grace_periods.len();
        let complete = size.is_some_and(|size| present >= size as usize);
        let missing = !topology.missing.is_empty();
        let restarting = self.restarting;
        let Some(map) = self.current_map() else {
            return TriggerInput { no_map: true, restarting, complete, missing, ..TriggerInput::default() };
        };
        let differs = self.desired.as_ref().is_some_and(|desired| desired.differs);
        // Cursors of a map that was lost: no worker may take them over before there is a map above them.
        let outdated = self.highest_cursor(facts) > map.version;
        let is_beyond = |id: &WorkerId| size.is_some_and(|size| id.0 >= size);
        TriggerInput {
            no_map: false,
            restarting,
            changed: map.workers != target || differs || outdated || self.is_imbalanced(map, facts),
            missing,
            complete,
            growing: size.is_some_and(|size| size as usize > map.workers.len()),
            urgent: outdated || map.fleet_size.is_some() && map.workers.iter().any(is_beyond),
        }
    }

    /// Plans one map for the orphaned partitions and for the joining workers. No other partition moves.
    fn redistribute(
        &mut self,
        topology: &Topology,
        dead: &BTreeSet<WorkerId>,
        size: Option<u32>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) {
        invariant!(dead.is_subset(&topology.crashed), "only a crashed worker is dead");
        // Other silent workers keep their partitions until they are confirmed dead, too.
        let silent: BTreeSet<WorkerId> = topology.crashed.difference(dead).copied().collect();
        let workers: BTreeSet<WorkerId> =
            topology.target().union(&silent).chain(&topology.leaving).copied().collect();
        let limit = facts.config.echo_limit();
        let receivers: BTreeSet<WorkerId> =
            workers.iter().copied().filter(|id| facts.roster.is_live(*id, limit, &facts.clock)).collect();
        if receivers.is_empty() {
            return;
        }
        self.window = None;
        self.transition(facts.now, CalculatorState::Emergency, "a worker crashed");
        let mode = Mode::Emergency;
        self.publish(&MapRequest { workers, receivers, mode, fleet_size: size }, facts, outbox);
    }

    /// Whether the map is outside the threshold and could be nearer. The answer is kept for each version.
    pub(super) fn is_imbalanced(&self, map: &AssignmentMap, facts: &Facts) -> bool {
        if let Some((_, imbalanced)) = self.imbalance.filter(|(version, _)| *version == map.version) {
            return imbalanced;
        }
        if !facts.policy().rebalances_after_emergency() {
            return false;
        }
        let Some(wanted) = self.desired.as_ref().map(|desired| &desired.partitions) else { return false };
        let input = MapInput {
            current: Some(map),
            wanted,
            workers: &map.workers,
            receivers: &map.workers,
            mode: Mode::Planned,
            options: &facts.config.planner,
        };
        input.would_move()
    }
}

#[cfg(test)]
#[path = "decision_test.rs"]
mod tests;
