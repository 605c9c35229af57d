//! The controller of the leader: from its view of the fleet to the maps that it publishes.
//!
//! A new leader first takes over (`takeover`): it reads the map, inherits the window and the grace periods of the last
//! leader, and rewrites the map unchanged except for its own epoch, so that late writes of an earlier leader fail. Then it
//! decides when to calculate (`decision`) and publishes the map (`publication`) and its own state (`state`).

mod decision;
mod map_builder;
mod publication;
mod state;
mod takeover;

#[cfg(test)]
mod test_support;

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_fsm::Fsm;

use self::decision::DesiredMap;
use self::state::StatePublication;
use super::facts::Facts;
use super::io::{Purpose, ReadError, RequestId, SubjectList, WriteError, Written};
use super::outbox::Outbox;
use super::suspects::Suspects;
use super::trigger::Window;
use super::types::{
    AssignmentMap, ClusterState, Entry, Epoch, Key, Revision, Time, Version, WindowKind, WorkerId,
};
use super::unlisted::UnlistedPartitions;
use super::{CalculatorState, WorkerState};

/// The progress of a leader.
#[derive(Clone, Debug, PartialEq)]
enum Phase {
    /// The map is being read. A proposal may be stored although its answer was lost.
    ReadingMap { request_id: RequestId, unanswered: Option<Proposal> },
    /// The map with the epoch of this leader is being written.
    ClaimingMap { request_id: RequestId, proposed: Arc<AssignmentMap> },
    /// The fleet is being evaluated, and no write of the map is in progress.
    Running,
    /// A new map is being written.
    Publishing { request_id: RequestId, proposed: Arc<AssignmentMap> },
}

/// A map that was written without an answer.
#[derive(Clone, Debug, PartialEq)]
struct Proposal {
    map: Arc<AssignmentMap>,
    /// Whether it is a new map; otherwise it only claims the current one.
    is_publication: bool,
}

/// The controller of one term of leadership.
#[derive(Debug)]
pub(crate) struct Controller {
    epoch: Epoch,
    phase: Phase,
    calculator: Fsm<CalculatorState>,
    map: Option<(Arc<AssignmentMap>, Revision)>,
    /// The version of the last leader's map, which may be lost.
    min_version: Version,
    window: Option<Window>,
    /// The number of changes that wait for the end of the window.
    pending: usize,
    inherited_grace_periods: BTreeMap<WorkerId, Time>,
    /// The ends of the grace periods at the last evaluation.
    grace_periods: BTreeMap<WorkerId, Time>,
    suspects: Suspects,
    unlisted: UnlistedPartitions,
    /// The time of the next check that the stored map is the known one.
    verify_at: Time,
    desired: Option<DesiredMap>,
    /// Whether almost no worker of the map was heard at the takeover. It ends when the fleet is complete or a map is
    /// published.
    restarting: bool,
    /// The version whose balance was checked, and whether it could be better.
    imbalance: Option<(Version, bool)>,
    state: StatePublication,
}

impl Controller {
    /// Starts a term of leadership: reads the map.
    pub(crate) fn new(epoch: Epoch, facts: &Facts, outbox: &mut Outbox) -> Self {
        let request_id = outbox.read(Purpose::LeaderReadMap, Key::Map);
        let mut controller = Self {
            epoch,
            phase: Phase::ReadingMap { request_id, unanswered: None },
            calculator: Fsm::new(facts.now.since_origin()),
            map: None,
            min_version: facts.cluster_state.as_ref().map_or(Version(0), |(state, _)| state.version),
            window: None,
            pending: 0,
            inherited_grace_periods: BTreeMap::new(),
            grace_periods: BTreeMap::new(),
            suspects: Suspects::default(),
            unlisted: UnlistedPartitions::default(),
            verify_at: facts.now + facts.config.unlisted_scan_interval,
            desired: None,
            restarting: false,
            imbalance: None,
            state: StatePublication::default(),
        };
        controller.inherit_state(facts);
        controller
    }

    /// Returns the map as this leader last read or wrote it.
    pub(crate) fn map(&self) -> Option<&(Arc<AssignmentMap>, Revision)> {
        self.map.as_ref()
    }

    fn current_map(&self) -> Option<&AssignmentMap> {
        self.map.as_ref().map(|(map, _)| map.as_ref())
    }

    fn map_version(&self) -> Option<Version> {
        self.current_map().map(|map| map.version)
    }

    /// Returns the number of changes that wait for the end of the window.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Returns the state that every worker should show.
    pub(crate) fn worker_state(&self) -> WorkerState {
        match self.calculator.state() {
            CalculatorState::Idle => WorkerState::Stable,
            CalculatorState::Scaling => WorkerState::Scaling,
            CalculatorState::Rebalancing => WorkerState::Rebalancing,
            CalculatorState::Emergency => WorkerState::Emergency,
        }
    }

    /// Handles the state key as the watch shows it.
    pub(crate) fn on_cluster_state(&mut self, state: &ClusterState) {
        self.state.on_watched(state);
    }

    /// Handles the answer to a read of the map or about a suspect. Returns the heartbeat of a suspect, if one was read.
    pub(crate) fn fetched(
        &mut self,
        request_id: RequestId,
        result: Result<Option<Entry>, ReadError>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) -> Option<(WorkerId, Entry)> {
        if matches!(request_id.purpose, Purpose::SuspectClaim | Purpose::SuspectHeartbeat) {
            return self.suspects.fetched(request_id, result, facts, outbox);
        }
        self.on_map_read(request_id, result, facts, outbox);
        None
    }

    /// Handles the answer to a write of the map. An answer to an earlier write changes nothing.
    pub(crate) fn written(
        &mut self,
        request_id: RequestId,
        result: Result<Written, WriteError>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) {
        let proposal = match &self.phase {
            Phase::ClaimingMap { request_id: asked, proposed } if *asked == request_id => {
                Proposal { map: proposed.clone(), is_publication: false }
            }
            Phase::Publishing { request_id: asked, proposed } if *asked == request_id => {
                Proposal { map: proposed.clone(), is_publication: true }
            }
            _ => return,
        };
        match result {
            Ok(written) => {
                self.map = Some((proposal.map, written.revision));
                if proposal.is_publication {
                    self.on_published(facts);
                }
                self.begin(facts, outbox);
            }
            // A write without an answer may have taken effect: reading tells.
            Err(WriteError::Unknown) => self.read_map(Some(proposal), outbox),
            Err(WriteError::Conflict | WriteError::Failed) => self.read_map(None, outbox),
        }
    }

    /// Handles the partitions that the log holds messages of.
    pub(crate) fn on_subjects(
        &mut self,
        request_id: RequestId,
        result: Result<SubjectList, ReadError>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) {
        let Some(listed) = &facts.partitions else { return };
        let map = self.map.as_ref().map(|(map, _)| map.as_ref());
        self.unlisted.subjects(request_id, result, listed, map, outbox);
    }

    /// Handles the cursors of partitions that are not in the list.
    pub(crate) fn on_unlisted_cursors(
        &mut self,
        request_id: RequestId,
        result: Result<Vec<Option<Entry>>, ReadError>,
        outbox: &mut Outbox,
    ) {
        let map = self.map.as_ref().map(|(map, _)| map.as_ref());
        self.unlisted.cursors(request_id, result, map, outbox);
    }

    /// Evaluates the fleet and does what is due.
    pub(crate) fn evaluate(&mut self, facts: &Facts, outbox: &mut Outbox) {
        if self.phase == Phase::Running {
            if facts.now >= self.verify_at {
                // The watch may have missed that the map is lost or was changed by another program.
                self.verify_at = facts.now + facts.config.unlisted_scan_interval;
                self.read_map(None, outbox);
                return;
            }
            if facts.config.consumes_log {
                self.unlisted.scan_if_due(facts, outbox);
            }
            self.update_desired(facts);
        }
        if matches!(self.phase, Phase::ReadingMap { .. } | Phase::ClaimingMap { .. }) {
            return;
        }
        let (topology, size) = self.topology(facts);
        if self.phase == Phase::Running {
            self.decide(&topology, size, facts, outbox);
        }
        self.grace_periods = topology.grace_periods;
        self.publish_state(facts, outbox);
    }

    /// Returns the time of the next timer, besides those of the healthy clock.
    pub(crate) fn next_deadline(&self, now: Time) -> Option<Time> {
        let window = self.window.map(|window| window.ends);
        let others = self.suspects.next_deadline().into_iter().chain(self.unlisted.next_deadline());
        let grace_periods = self.grace_periods.values().copied().filter(|&until| now < until);
        window.into_iter().chain([self.verify_at]).chain(others).chain(grace_periods).min()
    }

    fn transition(&mut self, now: Time, to: CalculatorState, cause: &'static str) {
        if self.calculator.state() != to {
            let legal = self.calculator.transition(now.since_origin(), to, cause);
            legal.unwrap_or_else(|illegal| violated!("{illegal} ({cause})"));
        }
    }
}

impl WindowKind {
    /// Returns the name by which it is counted and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::ColdStart => "cold_start",
            Self::Restart => "restart",
            Self::PlannedScale => "planned_scale",
        }
    }
}
