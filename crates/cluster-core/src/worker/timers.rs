//! The pass over all parts, which does what is due, and the timers until the next pass.

use std::time::Duration;

use phalanx_fsm::State as _;

use crate::WorkerState;
use crate::controller::Controller;
use crate::fence::FenceState;
use crate::io::{Effect, Purpose, Warning};
use crate::shutdown::ShutdownPhase;
use crate::types::{Key, Time, WorkerId};

use super::{MIN_PASS_INTERVAL, WorkerCore};

/// Delay before the map is read although the watch may still deliver it.
const MAP_READ_DELAY: Duration = Duration::from_secs(1);

impl WorkerCore {
    /// Does what is due.
    pub(super) fn run_due(&mut self) {
        self.run_consumer();
        if self.leave.is_some() {
            self.continue_shutdown();
        } else if self.is_synced {
            self.claim_id();
            self.run_controller();
            self.release_surplus_id();
        }
        self.catch_up();
        self.update_state();
        self.send_heartbeat();
    }

    /// Closes the fence if its time has come, and continues the steps that open it again.
    pub(super) fn check_fence(&mut self) {
        if self.facts.identity.is_none() {
            return;
        }
        if self.fence.tick(self.facts.now) {
            self.outbox.push(Effect::Fence);
            self.consumer.fence(self.facts.policy());
            self.controller = None;
            self.election.abandon();
            self.transition(WorkerState::Degraded, "no heartbeat was acknowledged");
            self.heartbeats.is_requested = true;
        }
        match self.fence.state() {
            FenceState::AwaitingClaim { .. } => self.identity.renew(&mut self.outbox),
            FenceState::AwaitingMap { .. } if self.map_search.read.is_none() => self.read_map(),
            _ => {}
        }
    }

    fn claim_id(&mut self) {
        if self.facts.identity.is_some() || self.identity.is_busy() {
            return;
        }
        if self.state() == WorkerState::Initialization {
            if self.facts.now < self.heartbeats.next {
                return;
            }
            self.transition(WorkerState::ClaimingId, "trying again");
        }
        invariant!(
            self.state() == WorkerState::ClaimingId,
            "ids are claimed in CLAIMING_ID: {:?}",
            self.state()
        );
        let (facts, max_workers) = (&self.facts, self.facts.config.max_workers);
        let size = facts.fleet_size(facts.map());
        let limit = size.unwrap_or(max_workers).min(max_workers);
        if !self.identity.search(limit, facts, &mut self.outbox) && size.is_none() {
            self.outbox.warn(Warning::PoolExhausted { ids: limit });
            self.transition(WorkerState::Initialization, "every id is taken");
        }
    }

    fn run_controller(&mut self) {
        if self.facts.identity.is_none() || !self.fence.is_open(self.facts.now) {
            return;
        }
        self.election.campaign(&self.facts, &mut self.outbox);
        if let Some(controller) = &mut self.controller {
            controller.evaluate(&self.facts, &mut self.outbox);
        }
    }

    /// Reads the map if a newer one exists and the watch has not delivered it.
    fn catch_up(&mut self) {
        let is_overdue = self
            .map_search
            .outdated_since
            .is_some_and(|since| self.facts.now.saturating_sub(since) >= MAP_READ_DELAY);
        if is_overdue && self.map_search.read.is_none() {
            self.map_search.outdated_since = None;
            self.read_map();
        }
    }

    fn read_map(&mut self) {
        invariant!(self.map_search.read.is_none(), "one read of the map at a time");
        self.map_search.read = Some(self.outbox.read(Purpose::ReadMap, Key::Map));
    }

    /// Shows the role before the first assignment, and the cluster state of the leader afterwards.
    fn update_state(&mut self) {
        let Some(me) = self.facts.identity else { return };
        let state = self.state();
        if self.leave.is_some() || state == WorkerState::Degraded {
            return;
        }
        if matches!(state, WorkerState::Election | WorkerState::Leader | WorkerState::Follower) {
            let is_elected = self.is_leader() || self.election.leader().is_some_and(|leader| leader != me);
            if is_elected {
                self.show_role(me.id);
            }
            return;
        }
        let shown = match &self.controller {
            Some(controller) => controller.worker_state(),
            None => self.facts.cluster_state.as_ref().map_or(WorkerState::Stable, |(state, _)| state.state),
        };
        if shown != state && !state.can_transition_to(shown) {
            self.transition(WorkerState::Stable, "between two states of the leader");
        }
        self.transition(shown, "as the leader says");
    }

    fn show_role(&mut self, me: WorkerId) {
        if self.is_leader() {
            self.transition(WorkerState::Leader, "won the election");
        } else {
            self.transition(WorkerState::Follower, "another leads");
        }
        if self.is_in_map(me) {
            self.transition(WorkerState::Stable, "has an assignment");
            return;
        }
        // At a cold start no worker has an assignment, and the leader shows the state of its calculator all the same.
        let calculator = self.controller.as_ref().map(Controller::worker_state);
        if let Some(busy) = calculator.filter(|&state| state != WorkerState::Stable) {
            self.transition(busy, "as its calculator does");
        }
    }

    fn is_in_map(&self, id: WorkerId) -> bool {
        self.facts.map().is_some_and(|map| map.workers.contains(&id))
    }

    /// Leaves DEGRADED: the fence is open again.
    pub(super) fn leave_degraded(&mut self) {
        let Some(me) = self.facts.identity.filter(|_| self.state() == WorkerState::Degraded) else { return };
        let to = if self.is_in_map(me.id) { WorkerState::Stable } else { WorkerState::Election };
        self.transition(to, "proved itself again");
        self.heartbeats.is_requested = true;
    }

    /// Runs what is due for the partitions, and reports the map whose removed partitions are all released.
    pub(super) fn run_consumer(&mut self) {
        if self.may_serve() {
            self.consumer.run_due(&self.facts, &mut self.outbox);
            if self.consumer.take_map_request() {
                self.map_search.outdated_since.get_or_insert(self.facts.now);
            }
        }
        if self.facts.config.consumes_log
            && self.consumer.has_released_all()
            && self.assignment.mark_all_released()
        {
            self.heartbeats.is_requested = true;
        }
    }

    /// Computes when the worker must be called again, for its timers or for a partition.
    pub(super) fn set_deadline(&mut self) {
        let now = self.facts.now;
        let partitions = if self.may_serve() { self.consumer.next_deadline(now) } else { None };
        let partitions = partitions.map(|due| due.max(now + MIN_PASS_INTERVAL));
        self.deadline = self.next_timer.into_iter().chain(partitions).min();
    }

    /// Returns the time of the next timer besides those of the partitions.
    pub(super) fn compute_deadline(&self) -> Option<Time> {
        if self.leave_phase() == Some(ShutdownPhase::Done) || !self.is_synced {
            return None;
        }
        let now = self.facts.now;
        let holds_id = self.facts.identity.is_some();
        let fence = self.fence.closes_at().filter(|_| holds_id).map(|closes| closes + MIN_PASS_INTERVAL);
        let due = [
            Some(self.heartbeats.next),
            self.drain_deadline(),
            fence,
            self.map_search.outdated_since.map(|since| since + MAP_READ_DELAY),
            self.election.next_deadline(),
            self.controller.as_ref().and_then(|controller| controller.next_deadline(now)),
            self.next_crash_deadline(),
            self.next_observation_deadline(),
        ];
        due.into_iter().flatten().min().map(|due| due.max(now + MIN_PASS_INTERVAL))
    }

    /// Returns the time at which a worker whose silence matters will count as crashed if it stays silent.
    fn next_crash_deadline(&self) -> Option<Time> {
        let Self { facts, .. } = self;
        let until = |id: WorkerId| {
            let silent = facts.roster.time_since_heartbeat(id, &facts.clock)?;
            let left = facts.config.crash_after().checked_sub(silent).filter(|left| !left.is_zero());
            left.map(|left| facts.now + left)
        };
        let leader = self.election.leader().map(|leader| leader.id);
        let fleet = self.controller.as_ref().and(facts.map()).map(|map| map.workers.iter().copied());
        leader.into_iter().chain(fleet.into_iter().flatten()).filter_map(until).min()
    }

    /// Returns the time at which this process will have watched for long enough to draw conclusions.
    fn next_observation_deadline(&self) -> Option<Time> {
        let Self { facts, .. } = self;
        let watched = facts.clock.since(facts.watching_since?);
        let limits =
            [facts.config.cold_start_window, facts.config.crash_after() + facts.config.heartbeat_interval];
        let left = limits.into_iter().filter_map(|limit| limit.checked_sub(watched));
        left.filter(|left| !left.is_zero()).map(|left| facts.now + left).min()
    }
}
