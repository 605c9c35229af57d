//! What a worker makes of what it hears: watched values, and answers to what it asked.

use std::sync::Arc;

use super::super::consumption::Consumption;
use super::super::controller::{Controller, Surroundings};
use super::super::fence::Stage;
use super::super::io::{Effect, Purpose, ReadError, Ticket, Warning, WriteError, Written};
use super::super::shutdown::Leaving;
use super::super::types::{AssignmentMap, Entry, Heartbeat, Key, Revision, Time, Value, Version, WorkerId};
use super::super::{Guard, WorkerState, election, identity};
use super::{Scope, Worker};

impl Worker {
    /// A watched value. Most are signs of life that say nothing new.
    pub(super) fn watched(
        &mut self,
        now: Time,
        key: &Key,
        entry: Option<Entry>,
        retained: bool,
        out: &mut Vec<Effect>,
    ) -> Scope {
        match (key, entry) {
            (Key::Claim(id), entry) => {
                let outcome = self.identity.watched(*id, entry.as_ref(), &self.clock, &mut self.tickets, out);
                self.identity_came_to(now, outcome, out);
                // Whoever has an id has no use for the news that others keep theirs.
                if outcome == identity::Outcome::Nothing && self.identity.holder().is_some() {
                    return Scope::Nothing;
                }
            }
            (Key::Heartbeat(id), Some(Entry { value: Value::Heartbeat(beat), .. })) => {
                self.heard_own(now, &beat, retained);
                let retained = retained && self.config.keeps(Guard::RetainedIsNoLife);
                let news = self.roster.note(*id, &beat, retained, now, &self.clock);
                self.notice_being_behind(now, &beat);
                return if news { Scope::Everything } else { Scope::Nothing };
            }
            (Key::StandbyHeartbeat(pod), entry) => {
                let beat = entry.and_then(|entry| match entry.value {
                    Value::Heartbeat(beat) => Some(beat),
                    _ => None,
                });
                if let Some(beat) = &beat {
                    self.heard_own(now, beat, retained);
                }
                self.roster.note_standby(pod, beat.as_deref(), retained, &self.clock);
            }
            (Key::Lease, entry) => {
                let outcome = self.election.watched(entry.as_ref(), &self.clock);
                self.election_came_to(now, outcome, out);
            }
            (Key::Map, Some(Entry { value: Value::Map(map), revision, .. })) => {
                self.see_map(map, revision, out)
            }
            (Key::Map, None) => {
                self.with_controller(now, out, |controller, _, tickets, out| {
                    controller.map_lost(tickets, out)
                });
            }
            (Key::ClusterState, Some(Entry { value: Value::ClusterState(state), .. })) => {
                self.election.note_epoch(state.epoch);
                if let Some(controller) = &mut self.controller {
                    controller.saw_state(&state);
                }
                // A late write of an earlier word is no news.
                let newest = self.last_state.as_ref().map(|(known, _)| (known.epoch, known.serial));
                if newest.is_none_or(|newest| (state.epoch, state.serial) > newest) {
                    self.last_state = Some((state, now));
                }
            }
            (Key::FleetSize, entry) => {
                self.commanded_size = entry.and_then(|entry| match entry.value {
                    Value::FleetSize(size) => Some(size),
                    _ => None,
                });
            }
            // A heartbeat that expired says nothing that silence did not; a lost map is not an empty one.
            _ => {}
        }
        Scope::Everything
    }

    /// Our own heartbeat has come back through the watch: the broker works.
    pub(super) fn heard_own(&mut self, now: Time, beat: &Heartbeat, retained: bool) {
        if !retained
            && beat.holder == self.identity.holder()
            && beat.pod == self.pod
            && let Some(sent) = self.fence.sent_at(beat.serial)
        {
            self.clock.echoed(now, sent);
        }
    }

    pub(super) fn notice_being_behind(&mut self, now: Time, beat: &Heartbeat) {
        let known = self.map.as_ref().map_or(Version(0), |(map, _)| map.version);
        if beat.is_leader && beat.map_version > known {
            self.behind_since.get_or_insert(now);
        }
    }

    pub(super) fn see_map(&mut self, map: Arc<AssignmentMap>, revision: Revision, out: &mut Vec<Effect>) {
        self.election.note_epoch(map.epoch);
        if self.map.as_ref().is_some_and(|(_, known)| *known >= revision) {
            return;
        }
        self.behind_since = None;
        self.map = Some((map, revision));
        self.follow_map(out);
    }

    pub(super) fn follow_map(&mut self, out: &mut Vec<Effect>) {
        if let (Some(holder), Some((map, _))) = (self.identity.holder(), &self.map) {
            let before = self.holdings.applied();
            if let Some(change) = self.holdings.follow(holder.id, map, out) {
                self.consumption.follow(&change, &self.config);
            }
            self.heartbeat_now |= self.holdings.applied() != before;
        }
    }

    pub(super) fn written(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: Result<Written, WriteError>,
        out: &mut Vec<Effect>,
    ) -> Scope {
        if let Ok(written) = result {
            self.broker_time = self.broker_time.max(written.stored_at);
        }
        match ticket.purpose {
            Purpose::Heartbeat => {
                self.unanswered.remove(&ticket.serial);
                if result.is_ok() {
                    let before = self.fence.stage();
                    self.fence.heartbeat_acknowledged(now, ticket.serial);
                    if self.fence.stage() != before {
                        self.fence_floor = self.tickets.last();
                    }
                    // A leaving worker may have waited for this answer.
                    if before == Stage::Open && self.leaving.is_none() {
                        return Scope::Nothing;
                    }
                }
            }
            Purpose::Claim | Purpose::Renew => {
                let outcome = self.identity.written(ticket, result, &mut self.tickets, out);
                if outcome == identity::Outcome::Renewed && ticket.serial > self.fence_floor {
                    self.claim_is_proved();
                }
                self.identity_came_to(now, outcome, out);
            }
            Purpose::Lease => {
                let outcome =
                    self.election.written(now, ticket, result, &self.config, &mut self.tickets, out);
                self.election_came_to(now, outcome, out);
            }
            Purpose::TouchMap | Purpose::PublishMap => {
                self.with_controller(now, out, |controller, around, tickets, out| {
                    controller.written(ticket, result, around, tickets, out);
                });
                // What we have written ourselves we need not wait to be shown.
                let written = self.controller.as_ref().and_then(Controller::map).cloned();
                if let Some((map, revision)) = written {
                    self.see_map(map, revision, out);
                }
            }
            Purpose::ReleaseCursor => self.consumption.unreleased().answered(ticket),
            Purpose::Farewell => self.left_behind(Leaving::Farewell(ticket), Leaving::AwaitingLease),
            Purpose::Resign => self.left_behind(Leaving::Resigning(ticket), Leaving::AwaitingRenewal),
            Purpose::Release if self.retiring => {
                self.retired(now, ticket, result.ok().map(|written| written.revision));
            }
            Purpose::Release => self.left_behind(Leaving::Releasing(ticket), Leaving::Done),
            _ => {}
        }
        if self.leaving == Some(Leaving::Done) {
            out.push(Effect::Exit);
        }
        Scope::Everything
    }

    pub(super) fn fetched(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: Result<Option<Entry>, ReadError>,
        out: &mut Vec<Effect>,
    ) {
        match ticket.purpose {
            Purpose::ReadClaim => {
                let outcome = self.identity.fetched(ticket, result, &self.clock, &mut self.tickets, out);
                self.identity_came_to(now, outcome, out);
            }
            Purpose::ReadLease => {
                let outcome = self.election.fetched(now, ticket, result, &self.config, &self.clock);
                self.election_came_to(now, outcome, out);
            }
            Purpose::ReadMap if self.map_read == Some(ticket) => {
                self.map_read = None;
                if let Ok(entry) = result {
                    if let Some(Entry { value: Value::Map(map), revision, .. }) = entry {
                        self.see_map(map, revision, out);
                    }
                    if ticket.serial > self.fence_floor && self.fence.map_read(now) {
                        out.push(Effect::Unfence);
                        self.leave_degraded(now);
                    }
                }
            }
            _ => {
                let mut found = None;
                self.with_controller(now, out, |controller, around, tickets, out| {
                    found = controller.fetched(ticket, result, around, tickets, out);
                });
                if let Some((id, Entry { value: Value::Heartbeat(beat), .. })) = found {
                    self.note_read_heartbeat(now, id, &beat);
                }
            }
        }
    }

    /// The claim was swapped after the heartbeat that is to open the fence was acknowledged.
    fn claim_is_proved(&mut self) {
        if matches!(self.fence.stage(), Stage::AwaitingClaim { .. }) {
            self.fence.claim_renewed();
            self.fence_floor = self.tickets.last();
        }
    }

    /// A suspect's heartbeat, read from the stream leader: if it is newer than what the watch brought, it lives.
    pub(super) fn note_read_heartbeat(&mut self, now: Time, id: WorkerId, beat: &Heartbeat) {
        let newer = match (self.roster.get(id), beat.holder) {
            (Some(seen), Some(holder)) => {
                (holder.incarnation, beat.serial) > (seen.incarnation, seen.serial) || beat.left && !seen.left
            }
            // Never heard: a value that lies there is no sign of life.
            _ => false,
        };
        if newer {
            self.roster.note(id, beat, false, now, &self.clock);
        }
    }

    pub(super) fn identity_came_to(&mut self, now: Time, outcome: identity::Outcome, out: &mut Vec<Effect>) {
        match outcome {
            identity::Outcome::Claimed(_) => {
                self.enter(now, WorkerState::Election, "id claimed");
                if !self.fence.is_open(now) {
                    self.enter(now, WorkerState::Degraded, "no heartbeat was acknowledged");
                }
                self.heartbeat_now = true;
                self.follow_map(out);
            }
            identity::Outcome::Renewed => {
                if !self.config.keeps(Guard::HeartbeatAlone) {
                    self.fence.prove(now);
                }
            }
            identity::Outcome::Lost(id) => {
                out.push(Effect::Warn(Warning::IdentityLost { id: id.0 }));
                self.controller = None;
                self.election.forsake();
                self.holdings.clear(out);
                self.consumption.abandon(out);
                self.consumption = Consumption::default();
                if std::mem::take(&mut self.retiring) {
                    self.leaving = None;
                }
                self.enter(now, WorkerState::ClaimingId, "identity lost");
            }
            identity::Outcome::Nothing | identity::Outcome::LookOn => {}
        }
    }

    pub(super) fn election_came_to(&mut self, now: Time, outcome: election::Outcome, out: &mut Vec<Effect>) {
        match outcome {
            election::Outcome::Won(epoch) => {
                if self.leaving.is_some() || !self.fence.is_open(now) {
                    return;
                }
                if !self.config.keeps(Guard::OwnTimers) {
                    self.roster.forget_timers(&self.clock);
                }
                let around = surroundings!(self, now);
                self.controller = Some(Controller::new(epoch, &around, &mut self.tickets, out));
                self.heartbeat_now = true;
            }
            election::Outcome::Lost => {
                self.controller = None;
                self.heartbeat_now = true;
            }
            election::Outcome::Nothing => {}
        }
    }
}
