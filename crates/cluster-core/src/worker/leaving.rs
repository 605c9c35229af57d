//! Leaving: the process for good, or only an id that the fleet no longer has.

use super::super::consumption::Consumption;
use super::super::holdings::Holdings;
use super::super::io::{Effect, Purpose, Ticket};
use super::super::shutdown::Leaving;
use super::super::types::{Revision, Time, WorkerId};
use super::super::{Guard, WorkerState, fleet_size};
use super::Worker;

impl Worker {
    pub(super) fn begin_leaving(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.leaving.is_some() && !self.retiring {
            return;
        }
        self.leaving = Some(Leaving::Draining);
        self.retiring = false;
        // A leader that is leaving publishes nothing.
        self.controller = None;
        self.enter(now, WorkerState::Shutdown, "told to leave");
        self.heartbeat_now = true;
        self.drain_until = now + self.config.drain_timeout;
        self.consumption.drain();
        if !self.config.keeps(Guard::IdLast) {
            self.identity.release(&self.config, &mut self.tickets, out);
        }
        out.push(Effect::Drain);
    }

    /// The fleet has become smaller than our id, and everything is let go of: give the id back in the order of leaving,
    /// and look for another.
    pub(super) fn retire_if_surplus(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(me) = self.identity.holder().filter(|_| self.fence.is_open(now)) else { return };
        let Some((map, _)) = &self.map else { return };
        if map.workers.contains(&me.id) {
            self.make_a_beginning(now, me.id, out);
            return;
        }
        let size =
            fleet_size::in_force(self.commanded_size, &self.config, &self.roster, &self.clock, Some(map));
        let surplus = size.is_some_and(|size| me.id.0 >= size) && map.fleet_size == size;
        if surplus && self.holdings.len() == 0 && self.holdings.applied() >= map.version {
            self.retiring = true;
            self.controller = None;
            self.leaving = Some(Leaving::ReleasingCursors);
            self.drain_until = now + self.config.drain_timeout;
            self.leave(now, out);
        }
    }

    /// The fleet is to be smaller than every id that is held: no map can be made for it before somebody moves. The lowest
    /// does: it lets go of everything and takes a free id.
    fn make_a_beginning(&mut self, now: Time, me: WorkerId, out: &mut Vec<Effect>) {
        let limit = self.config.crash_after();
        let lower = self.roster.live(limit, &self.clock).any(|(id, _)| id < me);
        let watched = self.watching_since.map_or(Time::ZERO, |since| self.clock.since(since));
        if lower || watched < limit {
            return;
        }
        let map = self.map.as_ref().map(|(map, _)| map.as_ref());
        let size = fleet_size::in_force(self.commanded_size, &self.config, &self.roster, &self.clock, map);
        if size.is_none_or(|size| me.0 < size || size == 0) {
            return;
        }
        self.retiring = true;
        self.drained = true;
        self.controller = None;
        self.leaving = Some(Leaving::Draining);
        self.drain_until = now + self.config.drain_timeout;
        self.holdings.clear(out);
        self.consumption.drain();
        self.leave(now, out);
    }

    pub(super) fn retired(&mut self, now: Time, ticket: Ticket, by: Option<Revision>) {
        if self.leaving == Some(Leaving::Releasing(ticket)) {
            self.identity.released(by);
            self.leaving = None;
            self.retiring = false;
            self.drained = false;
            self.holdings = Holdings::default();
            self.consumption = Consumption::default();
            self.enter(now, WorkerState::ClaimingId, "the fleet is smaller now");
            self.heartbeat_now = true;
        }
    }

    pub(super) fn left_behind(&mut self, stage: Leaving, next: Leaving) {
        if self.leaving == Some(stage) {
            self.leaving = Some(next);
        }
    }

    /// Releases the cursors of partitions of which nothing runs any more, within the fence and the drain time. It starts
    /// while other partitions drain, because one that never ends must not take their time.
    fn release_cursors(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_ready = match self.leaving {
            // Without a log, only the application knows when a partition is no longer in use.
            Some(Leaving::Draining) => self.config.log,
            Some(Leaving::ReleasingCursors) => true,
            _ => false,
        };
        let (has_time, is_open) = (now < self.drain_until, self.fence.is_open(now));
        let me = self.identity.holder().filter(|_| self.config.keeps(Guard::ReleasedOnLeave));
        let unreleased = self.consumption.unreleased();
        if let Some(me) = me.filter(|_| is_ready && is_open && has_time) {
            unreleased.send(me, &mut self.tickets, out);
        }
        // A fence may open again before the drain time is over.
        let is_done = me.is_none_or(|me| unreleased.is_done(me));
        if self.leaving == Some(Leaving::ReleasingCursors) && (is_done || !has_time) {
            self.leaving = Some(Leaving::AwaitingHeartbeats);
        }
    }

    pub(super) fn leave(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.leaving == Some(Leaving::Draining) {
            if now >= self.drain_until {
                self.consumption.abandon(out);
                self.drained = true;
            }
            if self.drained && self.consumption.has_let_go() {
                self.leaving = Some(Leaving::ReleasingCursors);
            }
        }
        self.release_cursors(now, out);
        if self.leaving == Some(Leaving::AwaitingHeartbeats) && self.unanswered.is_empty() {
            let ticket = self.tickets.next(Purpose::Farewell);
            out.push(self.heartbeat(ticket, true));
            self.leaving = Some(Leaving::Farewell(ticket));
        }
        if self.leaving == Some(Leaving::AwaitingLease) && !self.election.is_busy() {
            let resigning = self.election.resign(&self.config, &mut self.tickets, out);
            self.leaving = Some(resigning.map_or(Leaving::AwaitingRenewal, Leaving::Resigning));
        }
        if self.leaving == Some(Leaving::AwaitingRenewal) && !self.identity.is_busy() {
            let releasing = self.identity.release(&self.config, &mut self.tickets, out);
            self.leaving = Some(releasing.map_or(Leaving::Done, Leaving::Releasing));
            if releasing.is_none() {
                out.push(Effect::Exit);
            }
        }
    }
}

#[cfg(test)]
#[path = "leaving_test.rs"]
mod tests;
