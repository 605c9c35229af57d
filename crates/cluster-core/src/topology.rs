//! The fleet as the leader sees it: the workers that stay, join, leave, have crashed or are missing.

use std::collections::{BTreeMap, BTreeSet};

use super::WorkerState;
use super::facts::Facts;
use super::types::{AssignmentMap, Time, WorkerId};

/// The knowledge of the leader besides the shared facts.
pub(super) struct TopologyInput<'a> {
    pub(super) map: Option<&'a AssignmentMap>,
    pub(super) fleet_size: Option<u32>,
    /// The ends of the grace periods that the last leader left.
    pub(super) inherited: &'a BTreeMap<WorkerId, Time>,
    /// Whether this process has watched for as long as a cold start takes: a worker that it has not heard by now has
    /// crashed.
    pub(super) observed_long_enough: bool,
}

/// The workers of the map and the live workers, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Topology {
    /// Workers of the map that are there, or are waited for.
    pub(super) staying: BTreeSet<WorkerId>,
    /// Workers that are there and not in the map.
    pub(super) joining: BTreeSet<WorkerId>,
    /// Workers of the map that left for good.
    pub(super) leaving: BTreeSet<WorkerId>,
    /// Workers of the map that went silent.
    pub(super) crashed: BTreeSet<WorkerId>,
    /// Workers of the map that this process has never heard.
    pub(super) missing: BTreeSet<WorkerId>,
    /// Workers of the map that left and may come back until then.
    pub(super) grace_periods: BTreeMap<WorkerId, Time>,
}

impl Topology {
    /// Sorts the workers of the map and the live workers by what they do.
    pub(super) fn new(input: &TopologyInput<'_>, facts: &Facts) -> Self {
        let mut topology = Self::default();
        let below = |id: WorkerId| input.fleet_size.is_none_or(|size| id.0 < size);
        let live = || facts.roster.live(facts.config.crash_after(), &facts.clock).map(|(id, _)| id);
        // A size that came into force while every worker holds an id beyond it: one must serve all the same.
        let nobody_below = !live().any(below);
        let inside = |id: WorkerId| below(id) || nobody_below;
        let named = input.map.map(|map| &map.workers);
        for &id in named.into_iter().flatten() {
            if inside(id) {
                topology.add_named(id, input, facts);
            } else {
                topology.leaving.insert(id);
            }
        }
        for id in live() {
            let is_new = named.is_none_or(|workers| !workers.contains(&id));
            // Silence counts again from zero when health returns, so only a heartbeat since then makes a joining worker.
            if is_new && inside(id) && facts.roster.seen_since_healthy(id, &facts.clock) {
                topology.joining.insert(id);
            }
        }
        topology.check(named);
        topology
    }

    fn add_named(&mut self, id: WorkerId, input: &TopologyInput<'_>, facts: &Facts) {
        if facts.is_live(id) {
            self.staying.insert(id);
        } else if let Some(left_at) = left_at(id, facts) {
            let left_at = facts.policy().grace_period_start(left_at, &facts.roster);
            // The last leader may have received the leave record before this process began to watch.
            let heard = left_at + facts.config.replacement_grace_period;
            let until = input.inherited.get(&id).map_or(heard, |&inherited| inherited.min(heard));
            self.wait_or_drop(id, until, input, facts);
        } else if facts.roster.time_since_heartbeat(id, &facts.clock).is_some() {
            self.crashed.insert(id);
        } else if let Some(&until) = input.inherited.get(&id) {
            self.wait_or_drop(id, until, input, facts);
        } else if input.observed_long_enough || facts.policy().missing_is_crashed() {
            self.crashed.insert(id);
        } else {
            self.missing.insert(id);
            self.staying.insert(id);
        }
    }

    fn wait_or_drop(&mut self, id: WorkerId, until: Time, input: &TopologyInput<'_>, facts: &Facts) {
        // Without a fleet size it is unknown whether the worker is meant to come back.
        if input.fleet_size.is_some() && facts.now < until {
            self.staying.insert(id);
            self.grace_periods.insert(id, until);
        } else {
            self.leaving.insert(id);
        }
    }

    /// Asserts that each worker of the map is in exactly one set, and that no other worker is in these sets.
    fn check(&self, named: Option<&BTreeSet<WorkerId>>) {
        let count = self.staying.len() + self.leaving.len() + self.crashed.len();
        invariant!(count == named.map_or(0, BTreeSet::len), "{self:?} covers {named:?}");
        invariant!(self.missing.is_subset(&self.staying), "the leader waits for a missing worker: {self:?}");
        invariant!(self.grace_periods.keys().all(|id| self.staying.contains(id)), "{self:?}");
        invariant!(self.joining.iter().all(|id| named.is_none_or(|named| !named.contains(id))), "{self:?}");
    }

    /// The workers that the next map should have.
    pub(super) fn target(&self) -> BTreeSet<WorkerId> {
        self.staying.union(&self.joining).copied().collect()
    }
}

/// Returns when a worker left: at its leave record, or at its last heartbeat while it was shutting down.
fn left_at(id: WorkerId, facts: &Facts) -> Option<Time> {
    let seen = facts.roster.get(id)?;
    if seen.left {
        return seen.left_at;
    }
    let silent = facts.roster.time_since_heartbeat(id, &facts.clock)?;
    (seen.state == WorkerState::Shutdown).then(|| facts.now.checked_sub(silent).unwrap_or(Time::ZERO))
}
