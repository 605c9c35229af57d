//! Leaving: the process for good, or only an id that the fleet no longer has.

use std::time::Duration;

use super::super::assignment::OwnAssignment;
use super::super::consumer::Consumer;
use super::super::io::{Effect, Purpose, RequestId};
use super::super::shutdown::ShutdownPhase;
use super::super::types::{Revision, Time, WorkerId};
use super::super::{ProtocolRule, WorkerState, fleet_size};
use super::WorkerCore;

impl WorkerCore {
    pub(super) fn begin_shutdown(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.leaving.is_some() && !self.releasing_surplus_id {
            return;
        }
        self.leaving = Some(ShutdownPhase::Draining);
        self.releasing_surplus_id = false;
        // A leader that is leaving publishes nothing.
        self.controller = None;
        self.transition(now, WorkerState::Shutdown, "told to leave");
        self.heartbeat_due = true;
        self.drain_until = now + self.config.drain_timeout;
        self.consumption.drain();
        if !self.config.enforces(ProtocolRule::ReleaseIdLast) {
            self.identity.release(&self.config, &mut self.request_ids, out);
        }
        out.push(Effect::Drain);
    }

    /// The fleet has become smaller than our id, and everything is let go of: give the id back in the order of leaving,
    /// and look for another.
    pub(super) fn release_surplus_id(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(me) = self.identity.holder().filter(|_| self.fence.is_open(now)) else { return };
        let Some((map, _)) = &self.map else { return };
        if map.workers.contains(&me.id) {
            self.release_lowest_id(now, me.id, out);
            return;
        }
        let size =
            fleet_size::in_force(self.commanded_size, &self.config, &self.roster, &self.clock, Some(map));
        let surplus = size.is_some_and(|size| me.id.0 >= size) && map.fleet_size == size;
        if surplus && self.assignment.len() == 0 && self.assignment.applied() >= map.version {
            self.releasing_surplus_id = true;
            self.controller = None;
            self.leaving = Some(ShutdownPhase::ReleasingCursors);
            self.drain_until = now + self.config.drain_timeout;
            self.continue_shutdown(now, out);
        }
    }

    /// The fleet is to be smaller than every id that is held: no map can be made for it before somebody moves. The lowest
    /// does: it lets go of everything and takes a free id.
    fn release_lowest_id(&mut self, now: Time, me: WorkerId, out: &mut Vec<Effect>) {
        let limit = self.config.crash_after();
        let lower = self.roster.live(limit, &self.clock).any(|(id, _)| id < me);
        let watched = self.watching_since.map_or(Duration::ZERO, |since| self.clock.since(since));
        if lower || watched < limit {
            return;
        }
        let map = self.map.as_ref().map(|(map, _)| map.as_ref());
        let size = fleet_size::in_force(self.commanded_size, &self.config, &self.roster, &self.clock, map);
        if size.is_none_or(|size| me.0 < size || size == 0) {
            return;
        }
        self.releasing_surplus_id = true;
        self.drained = true;
        self.controller = None;
        self.leaving = Some(ShutdownPhase::Draining);
        self.drain_until = now + self.config.drain_timeout;
        self.assignment.clear(out);
        self.consumption.drain();
        self.continue_shutdown(now, out);
    }

    pub(super) fn on_id_released(&mut self, now: Time, request_id: RequestId, by: Option<Revision>) {
        if self.leaving == Some(ShutdownPhase::Releasing(request_id)) {
            self.identity.released(by);
            self.leaving = None;
            self.releasing_surplus_id = false;
            self.drained = false;
            self.assignment = OwnAssignment::default();
            self.consumption = Consumer::default();
            self.transition(now, WorkerState::ClaimingId, "the fleet is smaller now");
            self.heartbeat_due = true;
        }
    }

    pub(super) fn advance_shutdown(&mut self, stage: ShutdownPhase, next: ShutdownPhase) {
        if self.leaving == Some(stage) {
            self.leaving = Some(next);
        }
    }

    /// Releases the cursors of partitions of which nothing runs any more, within the fence and the drain time. It starts
    /// while other partitions drain, because one that never ends must not take their time.
    fn release_cursors(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_ready = match self.leaving {
            // Without a log, only the application knows when a partition is no longer in use.
            Some(ShutdownPhase::Draining) => self.config.consumes_log,
            Some(ShutdownPhase::ReleasingCursors) => true,
            _ => false,
        };
        let (has_time, is_open) = (now < self.drain_until, self.fence.is_open(now));
        let me = self.identity.holder().filter(|_| self.config.enforces(ProtocolRule::ReleasedOnLeave));
        let unreleased = self.consumption.unreleased();
        if let Some(me) = me.filter(|_| is_ready && is_open && has_time) {
            unreleased.send(me, &mut self.request_ids, out);
        }
        // A fence may open again before the drain time is over.
        let is_done = me.is_none_or(|me| unreleased.is_done(me));
        if self.leaving == Some(ShutdownPhase::ReleasingCursors) && (is_done || !has_time) {
            self.leaving = Some(ShutdownPhase::AwaitingHeartbeats);
        }
    }

    pub(super) fn continue_shutdown(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.leaving == Some(ShutdownPhase::Draining) {
            if now >= self.drain_until {
                self.consumption.abandon(out);
                self.drained = true;
            }
            if self.drained && self.consumption.has_released_all() {
                self.leaving = Some(ShutdownPhase::ReleasingCursors);
            }
        }
        self.release_cursors(now, out);
        if self.leaving == Some(ShutdownPhase::AwaitingHeartbeats) && self.unanswered.is_empty() {
            let request_id = self.request_ids.next(Purpose::LeaveRecord);
            out.push(self.heartbeat_effect(request_id, true));
            self.leaving = Some(ShutdownPhase::WritingLeaveRecord(request_id));
        }
        if self.leaving == Some(ShutdownPhase::AwaitingLease) && !self.election.is_busy() {
            let resigning = self.election.resign(&self.config, &mut self.request_ids, out);
            self.leaving = Some(resigning.map_or(ShutdownPhase::AwaitingRenewal, ShutdownPhase::Resigning));
        }
        if self.leaving == Some(ShutdownPhase::AwaitingRenewal) && !self.identity.is_busy() {
            let releasing = self.identity.release(&self.config, &mut self.request_ids, out);
            self.leaving = Some(releasing.map_or(ShutdownPhase::Done, ShutdownPhase::Releasing));
            if releasing.is_none() {
                out.push(Effect::Exit);
            }
        }
    }
}

#[cfg(test)]
#[path = "leave_test.rs"]
mod tests;
