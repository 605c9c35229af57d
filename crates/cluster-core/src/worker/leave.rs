//! Leaving: the process, or only an id that the fleet no longer has.

use crate::WorkerState;
use crate::assignment::OwnAssignment;
use crate::consumer::Consumer;
use crate::io::{Effect, RequestId};
use crate::shutdown::ShutdownPhase;
use crate::types::{Revision, Time, WorkerId};

use super::WorkerCore;

/// The extent of a leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaveScope {
    /// The fleet: the process ends.
    Process,
    /// Its id, because the fleet has become smaller. It stays as a standby or claims a free id.
    SurplusId,
}

/// A leave in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leave {
    phase: ShutdownPhase,
    scope: LeaveScope,
    /// Whether the shell has drained its work.
    is_drained: bool,
    drain_until: Time,
}

impl Leave {
    /// Whether the process ends.
    pub(super) fn ends_process(&self) -> bool {
        self.scope == LeaveScope::Process
    }
}

impl WorkerCore {
    pub(super) fn leave_phase(&self) -> Option<ShutdownPhase> {
        self.leave.map(|leave| leave.phase)
    }

    /// Returns the end of the drain time, while the worker still works or writes cursors.
    pub(super) fn drain_deadline(&self) -> Option<Time> {
        self.leave.filter(|leave| leave.phase.needs_heartbeats()).map(|leave| leave.drain_until)
    }

    fn set_phase(&mut self, phase: ShutdownPhase) {
        self.leave.as_mut().unwrap_or_else(|| violated!("only a leave in progress has a phase")).phase =
            phase;
    }

    fn start_leave(&mut self, scope: LeaveScope, phase: ShutdownPhase, is_drained: bool) {
        // A leader that is leaving publishes nothing.
        self.controller = None;
        let drain_until = self.facts.now + self.facts.config.drain_timeout;
        self.leave = Some(Leave { phase, scope, is_drained, drain_until });
    }

    /// Begins to leave the fleet. A second call changes nothing.
    pub(super) fn begin_shutdown(&mut self) {
        if self.leave.is_some_and(|leave| leave.ends_process()) {
            return;
        }
        let is_drained = self.leave.is_some_and(|leave| leave.is_drained);
        self.start_leave(LeaveScope::Process, ShutdownPhase::Draining, is_drained);
        self.transition(WorkerState::Shutdown, "told to leave");
        self.heartbeats.is_requested = true;
        self.consumer.drain();
        if self.facts.policy().releases_id_first() {
            self.identity.release(&self.facts.config, &mut self.outbox);
        }
        self.outbox.push(Effect::Drain);
    }

    pub(super) fn on_drained(&mut self) {
        if let Some(leave) = &mut self.leave {
            leave.is_drained = true;
        }
    }

    /// Releases an id that is beyond the fleet size, once everything is released, and searches for another.
    pub(super) fn release_surplus_id(&mut self) {
        let Some(me) = self.facts.identity.filter(|_| self.fence.is_open(self.facts.now)) else { return };
        let Some(map) = self.facts.map() else { return };
        if map.workers.contains(&me.id) {
            self.release_lowest_id(me.id);
            return;
        }
        let size = self.facts.fleet_size(Some(map));
        let is_surplus = size.is_some_and(|size| me.id.0 >= size) && map.fleet_size == size;
        if is_surplus && self.assignment.len() == 0 && self.assignment.applied() >= map.version {
            self.start_leave(LeaveScope::SurplusId, ShutdownPhase::ReleasingCursors, false);
            self.continue_shutdown();
        }
    }

    /// Releases the lowest held id if the fleet size is below every held id: no map can be planned before a worker claims an
    /// id below it. The worker releases all partitions first.
    fn release_lowest_id(&mut self, me: WorkerId) {
        let limit = self.facts.config.crash_after();
        let is_lowest = !self.facts.roster.live(limit, &self.facts.clock).any(|(id, _)| id < me);
        if !is_lowest || self.facts.watched() < limit {
            return;
        }
        if self.facts.fleet_size(self.facts.map()).is_none_or(|size| me.0 < size || size == 0) {
            return;
        }
        self.start_leave(LeaveScope::SurplusId, ShutdownPhase::Draining, true);
        self.assignment.clear(&mut self.outbox);
        self.consumer.drain();
        self.continue_shutdown();
    }

    /// Handles the answer to the release of the id. `revision` is that of the deletion, if it took effect.
    pub(super) fn on_id_released(&mut self, request_id: RequestId, revision: Option<Revision>) {
        let Some(leave) = self.leave.filter(|leave| leave.phase == ShutdownPhase::Releasing(request_id))
        else {
            return;
        };
        invariant!(self.controller.is_none(), "a worker resigns before it releases its id");
        if leave.ends_process() {
            self.set_phase(ShutdownPhase::Done);
            return;
        }
        self.identity.released(revision);
        self.facts.identity = self.identity.holder();
        self.leave = None;
        self.assignment = OwnAssignment::default();
        self.consumer = Consumer::default();
        self.transition(WorkerState::ClaimingId, "the fleet is smaller now");
        self.heartbeats.is_requested = true;
    }

    /// Ends the release of a surplus id: the id is lost.
    pub(super) fn cancel_surplus_release(&mut self) {
        self.leave.take_if(|leave| !leave.ends_process());
    }

    /// Goes to the next phase if the worker is in this one.
    pub(super) fn advance_shutdown(&mut self, phase: ShutdownPhase, next: ShutdownPhase) {
        if self.leave_phase() == Some(phase) {
            self.set_phase(next);
        }
    }

    /// Does the next steps of leaving, as far as they are possible now.
    pub(super) fn continue_shutdown(&mut self) {
        self.finish_drain();
        self.release_cursors();
        if self.leave_phase() == Some(ShutdownPhase::AwaitingHeartbeats)
            && self.heartbeats.unanswered.is_empty()
        {
            let request_id = self.write_leave_record();
            self.set_phase(ShutdownPhase::WritingLeaveRecord(request_id));
        }
        if self.leave_phase() == Some(ShutdownPhase::AwaitingLease) && !self.election.is_busy() {
            let resigning = self.election.resign(&self.facts.config, &mut self.outbox);
            self.set_phase(resigning.map_or(ShutdownPhase::AwaitingRenewal, ShutdownPhase::Resigning));
        }
        if self.leave_phase() == Some(ShutdownPhase::AwaitingRenewal) && !self.identity.is_busy() {
            let releasing = self.identity.release(&self.facts.config, &mut self.outbox);
            self.set_phase(releasing.map_or(ShutdownPhase::Done, ShutdownPhase::Releasing));
            if releasing.is_none() {
                self.outbox.push(Effect::Exit);
            }
        }
    }

    fn finish_drain(&mut self) {
        let Some(leave) = self.leave.filter(|leave| leave.phase == ShutdownPhase::Draining) else { return };
        let is_late = self.facts.now >= leave.drain_until;
        if is_late {
            self.consumer.abandon(&mut self.outbox);
        }
        if (is_late || leave.is_drained) && self.consumer.has_released_all() {
            self.set_phase(ShutdownPhase::ReleasingCursors);
        }
        if is_late {
            self.on_drained();
        }
    }

    /// Releases the cursors of partitions that no work uses any more, within the fence and the drain time. It starts while
    /// other partitions drain, because one that never ends must not take their time.
    fn release_cursors(&mut self) {
        let Some(leave) = self.leave else { return };
        let is_ready = match leave.phase {
            // Without a log, only the application knows when a partition is no longer in use.
            ShutdownPhase::Draining => self.facts.config.consumes_log,
            ShutdownPhase::ReleasingCursors => true,
            _ => false,
        };
        let (has_time, is_open) = (self.facts.now < leave.drain_until, self.fence.is_open(self.facts.now));
        let me = self.facts.identity.filter(|_| self.facts.policy().releases_cursors());
        let unreleased = self.consumer.unreleased();
        if let Some(me) = me.filter(|_| is_ready && is_open && has_time) {
            unreleased.send(me, &mut self.outbox);
        }
        // A fence may open again before the drain time is over.
        let is_done = me.is_none_or(|me| unreleased.is_done(me));
        if leave.phase == ShutdownPhase::ReleasingCursors && (is_done || !has_time) {
            self.set_phase(ShutdownPhase::AwaitingHeartbeats);
        }
    }
}

#[cfg(test)]
#[path = "leave_test.rs"]
mod tests;
