//! The handling of watched values and of answers to requests.

use std::sync::Arc;

use super::super::consumer::Consumer;
use super::super::controller::{Controller, ControllerContext};
use super::super::fence::FenceState;
use super::super::io::{Effect, Purpose, ReadError, RequestId, Warning, WriteError, Written};
use super::super::shutdown::ShutdownPhase;
use super::super::types::{AssignmentMap, Entry, Heartbeat, Key, Revision, Time, Value, Version, WorkerId};
use super::super::{ProtocolRule, WorkerState, election, identity};
use super::{EventScope, WorkerCore};

impl WorkerCore {
    /// Handles a watched value. Most are heartbeats that change nothing.
    pub(super) fn watched(
        &mut self,
        now: Time,
        key: &Key,
        entry: Option<Entry>,
        retained: bool,
        out: &mut Vec<Effect>,
    ) -> EventScope {
        match (key, entry) {
            (Key::Claim(id), entry) => {
                let outcome =
                    self.identity.watched(*id, entry.as_ref(), &self.clock, &mut self.request_ids, out);
                self.on_claim_outcome(now, outcome, out);
                // A worker with an id does not need the claims of other ids.
                if outcome == identity::ClaimOutcome::Nothing && self.identity.holder().is_some() {
                    return EventScope::Nothing;
                }
            }
            (Key::Heartbeat(id), Some(Entry { value: Value::Heartbeat(beat), .. })) => {
                self.on_own_heartbeat(now, &beat, retained);
                let retained = retained && self.config.enforces(ProtocolRule::RetainedIsNotAlive);
                let news = self.roster.record_heartbeat(*id, &beat, retained, now, &self.clock);
                self.detect_outdated_map(now, &beat);
                return if news { EventScope::Everything } else { EventScope::Nothing };
            }
            (Key::StandbyHeartbeat(pod), entry) => {
                let beat = entry.and_then(|entry| match entry.value {
                    Value::Heartbeat(beat) => Some(beat),
                    _ => None,
                });
                if let Some(beat) = &beat {
                    self.on_own_heartbeat(now, beat, retained);
                }
                self.roster.record_standby(pod, beat.as_deref(), retained, &self.clock);
            }
            (Key::Lease, entry) => {
                let outcome = self.election.watched(entry.as_ref(), &self.clock);
                self.on_election_outcome(now, outcome, out);
            }
            (Key::Map, Some(Entry { value: Value::Map(map), revision, .. })) => {
                self.on_map(map, revision, out)
            }
            (Key::Map, None) => {
                self.with_controller(now, out, |controller, _, request_ids, out| {
                    controller.map_lost(request_ids, out)
                });
            }
            (Key::ClusterState, Some(Entry { value: Value::ClusterState(state), .. })) => {
                self.election.note_epoch(state.epoch);
                if let Some(controller) = &mut self.controller {
                    controller.on_cluster_state(&state);
                }
                // A late write of an older state changes nothing.
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
        EventScope::Everything
    }

    /// Our own heartbeat has come back through the watch: the broker works.
    pub(super) fn on_own_heartbeat(&mut self, now: Time, beat: &Heartbeat, retained: bool) {
        if !retained
            && beat.worker == self.identity.holder()
            && beat.pod == self.pod
            && let Some(sent) = self.fence.sent_at(beat.serial)
        {
            self.clock.echoed(now, sent);
        }
    }

    pub(super) fn detect_outdated_map(&mut self, now: Time, beat: &Heartbeat) {
        let known = self.map.as_ref().map_or(Version(0), |(map, _)| map.version);
        if beat.is_leader && beat.map_version > known {
            self.map_outdated_since.get_or_insert(now);
        }
    }

    pub(super) fn on_map(&mut self, map: Arc<AssignmentMap>, revision: Revision, out: &mut Vec<Effect>) {
        self.election.note_epoch(map.epoch);
        if self.map.as_ref().is_some_and(|(_, known)| *known >= revision) {
            return;
        }
        self.map_outdated_since = None;
        self.map = Some((map, revision));
        self.follow_map(out);
    }

    pub(super) fn follow_map(&mut self, out: &mut Vec<Effect>) {
        if let (Some(holder), Some((map, _))) = (self.identity.holder(), &self.map) {
            let before = self.assignment.applied();
            if let Some(change) = self.assignment.apply_map(holder.id, map, out) {
                self.consumption.apply_change(&change, &self.config);
            }
            self.heartbeat_due |= self.assignment.applied() != before;
        }
    }

    pub(super) fn written(
        &mut self,
        now: Time,
        request_id: RequestId,
        result: Result<Written, WriteError>,
        out: &mut Vec<Effect>,
    ) -> EventScope {
        if let Ok(written) = result {
            self.broker_time = self.broker_time.max(written.stored_at);
        }
        match request_id.purpose {
            Purpose::Heartbeat => {
                self.unanswered.remove(&request_id.serial);
                if result.is_ok() {
                    let before = self.fence.stage();
                    self.fence.heartbeat_acknowledged(now, request_id.serial);
                    if self.fence.stage() != before {
                        self.fence_min_request = self.request_ids.last();
                    }
                    // A leaving worker may have waited for this answer.
                    if before == FenceState::Open && self.leaving.is_none() {
                        return EventScope::Nothing;
                    }
                }
            }
            Purpose::Claim | Purpose::Renew => {
                let outcome = self.identity.written(request_id, result, &mut self.request_ids, out);
                if outcome == identity::ClaimOutcome::Renewed && request_id.serial > self.fence_min_request {
                    self.on_claim_verified();
                }
                self.on_claim_outcome(now, outcome, out);
            }
            Purpose::Lease => {
                let outcome =
                    self.election.written(now, request_id, result, &self.config, &mut self.request_ids, out);
                self.on_election_outcome(now, outcome, out);
            }
            Purpose::TouchMap | Purpose::PublishMap => {
                self.with_controller(now, out, |controller, context, request_ids, out| {
                    controller.written(request_id, result, context, request_ids, out);
                });
                // What we have written ourselves we need not wait to be shown.
                let written = self.controller.as_ref().and_then(Controller::map).cloned();
                if let Some((map, revision)) = written {
                    self.on_map(map, revision, out);
                }
            }
            Purpose::ReleaseCursor => self.consumption.unreleased().answered(request_id),
            Purpose::LeaveRecord => self.advance_shutdown(
                ShutdownPhase::WritingLeaveRecord(request_id),
                ShutdownPhase::AwaitingLease,
            ),
            Purpose::Resign => {
                self.advance_shutdown(ShutdownPhase::Resigning(request_id), ShutdownPhase::AwaitingRenewal)
            }
            Purpose::Release if self.releasing_surplus_id => {
                self.on_id_released(now, request_id, result.ok().map(|written| written.revision));
            }
            Purpose::Release => {
                self.advance_shutdown(ShutdownPhase::Releasing(request_id), ShutdownPhase::Done)
            }
            _ => {}
        }
        if self.leaving == Some(ShutdownPhase::Done) {
            out.push(Effect::Exit);
        }
        EventScope::Everything
    }

    pub(super) fn fetched(
        &mut self,
        now: Time,
        request_id: RequestId,
        result: Result<Option<Entry>, ReadError>,
        out: &mut Vec<Effect>,
    ) {
        match request_id.purpose {
            Purpose::ReadClaim => {
                let outcome =
                    self.identity.fetched(request_id, result, &self.clock, &mut self.request_ids, out);
                self.on_claim_outcome(now, outcome, out);
            }
            Purpose::ReadLease => {
                let outcome = self.election.fetched(now, request_id, result, &self.config, &self.clock);
                self.on_election_outcome(now, outcome, out);
            }
            Purpose::ReadMap if self.map_read == Some(request_id) => {
                self.map_read = None;
                if let Ok(entry) = result {
                    if let Some(Entry { value: Value::Map(map), revision, .. }) = entry {
                        self.on_map(map, revision, out);
                    }
                    if request_id.serial > self.fence_min_request && self.fence.map_read(now) {
                        out.push(Effect::Unfence);
                        self.leave_degraded(now);
                    }
                }
            }
            _ => {
                let mut found = None;
                self.with_controller(now, out, |controller, context, request_ids, out| {
                    found = controller.fetched(request_id, result, context, request_ids, out);
                });
                if let Some((id, Entry { value: Value::Heartbeat(beat), .. })) = found {
                    self.record_suspect_heartbeat(now, id, &beat);
                }
            }
        }
    }

    /// The claim was swapped after the heartbeat that is to open the fence was acknowledged.
    fn on_claim_verified(&mut self) {
        if matches!(self.fence.stage(), FenceState::AwaitingClaim { .. }) {
            self.fence.claim_renewed();
            self.fence_min_request = self.request_ids.last();
        }
    }

    /// A suspect's heartbeat, read from the stream leader: if it is newer than what the watch brought, it lives.
    pub(super) fn record_suspect_heartbeat(&mut self, now: Time, id: WorkerId, beat: &Heartbeat) {
        let newer = match (self.roster.get(id), beat.worker) {
            (Some(seen), Some(holder)) => {
                (holder.incarnation, beat.serial) > (seen.incarnation, seen.serial) || beat.left && !seen.left
            }
            // A worker that was never heard: a retained value does not prove that it lives.
            _ => false,
        };
        if newer {
            self.roster.record_heartbeat(id, beat, false, now, &self.clock);
        }
    }

    pub(super) fn on_claim_outcome(
        &mut self,
        now: Time,
        outcome: identity::ClaimOutcome,
        out: &mut Vec<Effect>,
    ) {
        match outcome {
            identity::ClaimOutcome::Claimed(_) => {
                self.transition(now, WorkerState::Election, "id claimed");
                if !self.fence.is_open(now) {
                    self.transition(now, WorkerState::Degraded, "no heartbeat was acknowledged");
                }
                self.heartbeat_due = true;
                self.follow_map(out);
            }
            identity::ClaimOutcome::Renewed => {
                if !self.config.enforces(ProtocolRule::OnlyHeartbeatsProve) {
                    self.fence.record_proof(now);
                }
            }
            identity::ClaimOutcome::Lost(id) => {
                out.push(Effect::Warn(Warning::IdentityLost { id: id.0 }));
                self.controller = None;
                self.election.abandon();
                self.assignment.clear(out);
                self.consumption.abandon(out);
                self.consumption = Consumer::default();
                if std::mem::take(&mut self.releasing_surplus_id) {
                    self.leaving = None;
                }
                self.transition(now, WorkerState::ClaimingId, "identity lost");
            }
            identity::ClaimOutcome::Nothing | identity::ClaimOutcome::IdTaken => {}
        }
    }

    pub(super) fn on_election_outcome(
        &mut self,
        now: Time,
        outcome: election::ElectionOutcome,
        out: &mut Vec<Effect>,
    ) {
        match outcome {
            election::ElectionOutcome::Won(epoch) => {
                if self.leaving.is_some() || !self.fence.is_open(now) {
                    return;
                }
                if !self.config.enforces(ProtocolRule::EveryWorkerTimes) {
                    self.roster.reset_timers(&self.clock);
                }
                let context = controller_context!(self, now);
                self.controller = Some(Controller::new(epoch, &context, &mut self.request_ids, out));
                self.heartbeat_due = true;
            }
            election::ElectionOutcome::Lost => {
                self.controller = None;
                self.heartbeat_due = true;
            }
            election::ElectionOutcome::Nothing => {}
        }
    }
}
