//! What the leader makes of the roster: who stays, who came, who left, who is dead, who is only missing.

use std::collections::{BTreeMap, BTreeSet};

use super::config::Config;
use super::health::HealthyClock;
use super::roster::Roster;
use super::types::{AssignmentMap, Time, WorkerId};
use super::{ProtocolRule, WorkerState};

/// What is needed to judge.
pub(super) struct TopologyInput<'a> {
    pub(super) now: Time,
    pub(super) config: &'a Config,
    pub(super) roster: &'a Roster,
    pub(super) clock: &'a HealthyClock,
    pub(super) map: Option<&'a AssignmentMap>,
    pub(super) fleet_size: Option<u32>,
    /// The ends of the grace periods that the last leader left.
    pub(super) inherited: &'a BTreeMap<WorkerId, Time>,
    /// Whether this process has watched for as long as a cold start takes: whoever was not heard by now is not there.
    pub(super) observed_long_enough: bool,
}

/// The fleet, judged.
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
    pub(super) fn of(view: &TopologyInput<'_>) -> Self {
        let mut topology = Self::default();
        let crash = view.config.crash_after();
        let below = |id: WorkerId| view.fleet_size.is_none_or(|size| id.0 < size);
        // A size that came into force while everybody holds an id beyond it: somebody must serve all the same.
        let nobody_below = !view.roster.live(crash, view.clock).any(|(id, _)| below(id));
        let inside = |id: WorkerId| below(id) || nobody_below;
        let named = view.map.map(|map| &map.workers);
        for &id in named.into_iter().flatten() {
            if !inside(id) {
                topology.leaving.insert(id);
            } else if view.roster.is_live(id, crash, view.clock) {
                topology.staying.insert(id);
            } else if let Some(left_at) = left_at(view, id) {
                let left_at = if view.config.enforces(ProtocolRule::GracePeriodPerId) {
                    left_at
                } else {
                    view.roster.iter().filter_map(|(_, seen)| seen.left_at).min().unwrap_or(left_at)
                };
                // The last leader may have received the leave record before we began to listen.
                let heard = left_at + view.config.replacement_grace_period;
                let until = view.inherited.get(&id).map_or(heard, |&inherited| inherited.min(heard));
                topology.wait_or_drop(id, until, view);
            } else if view.roster.time_since_heartbeat(id, view.clock).is_some() {
                topology.crashed.insert(id);
            } else if let Some(&until) = view.inherited.get(&id) {
                topology.wait_or_drop(id, until, view);
            } else if view.observed_long_enough || !view.config.enforces(ProtocolRule::MissingIsNotCrashed) {
                topology.crashed.insert(id);
            } else {
                topology.missing.insert(id);
                topology.staying.insert(id);
            }
        }
        for (id, _) in view.roster.live(crash, view.clock) {
            let is_new = named.is_none_or(|workers| !workers.contains(&id));
            // The silence of the long dead counts anew when health returns: only a word since then makes one a newcomer.
            if is_new && inside(id) && view.roster.seen_since_healthy(id, view.clock) {
                topology.joining.insert(id);
            }
        }
        topology
    }

    fn wait_or_drop(&mut self, id: WorkerId, until: Time, view: &TopologyInput<'_>) {
        // Without a fleet size it is unknown whether the worker is meant to come back.
        if view.fleet_size.is_some() && view.now < until {
            self.staying.insert(id);
            self.grace_periods.insert(id, until);
        } else {
            self.leaving.insert(id);
        }
    }

    /// The workers that the next map should have.
    pub(super) fn target(&self) -> BTreeSet<WorkerId> {
        self.staying.union(&self.joining).copied().collect()
    }
}

/// Returns when a worker left: at its leave record, or at its last heartbeat while it was shutting down.
fn left_at(view: &TopologyInput<'_>, id: WorkerId) -> Option<Time> {
    let seen = view.roster.get(id)?;
    if seen.left {
        return seen.left_at;
    }
    let silent = view.roster.time_since_heartbeat(id, view.clock)?;
    (seen.state == WorkerState::Shutdown).then(|| view.now.checked_sub(silent).unwrap_or(Time::ZERO))
}
