//! Handling watched values and answers to requests.

use std::sync::Arc;

use crate::WorkerState;
use crate::consumer::Consumer;
use crate::controller::Controller;
use crate::election::ElectionOutcome;
use crate::fence::FenceState;
use crate::identity::ClaimOutcome;
use crate::io::{Effect, Purpose, ReadError, RequestId, Warning, WriteError, Written};
use crate::shutdown::ShutdownPhase;
use crate::types::{AssignmentMap, Entry, Heartbeat, Key, Revision, Value, WorkerId};

use super::{EventScope, WorkerCore};

impl WorkerCore {
    /// Handles a watched value. Most are heartbeats that change nothing.
    pub(super) fn watched(&mut self, key: &Key, entry: Option<Entry>, retained: bool) -> EventScope {
        match (key, entry) {
            (Key::Claim(id), entry) => {
                let outcome = self.identity.watched(*id, entry.as_ref(), &self.facts.clock, &mut self.outbox);
                self.on_claim_outcome(outcome);
                // A worker with an id does not need the claims of other ids.
                if outcome == ClaimOutcome::Nothing && self.facts.identity.is_some() {
                    return EventScope::Nothing;
                }
            }
            (Key::Heartbeat(id), Some(Entry { value: Value::Heartbeat(beat), .. })) => {
                self.on_own_heartbeat(&beat, retained);
                let retained = self.facts.policy().is_retained(retained);
                let is_new = self.record_heartbeat(*id, &beat, retained);
                self.detect_outdated_map(&beat);
                return if is_new { EventScope::Everything } else { EventScope::Nothing };
            }
            (Key::StandbyHeartbeat(pod), entry) => {
                let beat = entry.and_then(|entry| match entry.value {
                    Value::Heartbeat(beat) => Some(beat),
                    _ => None,
                });
                if let Some(beat) = &beat {
                    self.on_own_heartbeat(beat, retained);
                }
                self.facts.roster.record_standby(pod, beat.as_deref(), retained, &self.facts.clock);
            }
            (Key::Lease, entry) => {
                let outcome = self.election.watched(entry.as_ref(), &self.facts);
                self.on_election_outcome(outcome);
            }
            (Key::Map, Some(Entry { value: Value::Map(map), revision, .. })) => self.on_map(map, revision),
            (Key::Map, None) => {
                if let Some(controller) = &mut self.controller {
                    controller.on_map_lost(&mut self.outbox);
                }
            }
            (Key::ClusterState, Some(Entry { value: Value::ClusterState(state), .. })) => {
                self.election.note_epoch(state.epoch);
                if let Some(controller) = &mut self.controller {
                    controller.on_cluster_state(&state);
                }
                self.facts.note_cluster_state(state);
            }
            (Key::FleetSize, entry) => {
                self.facts.commanded_size = entry.and_then(|entry| match entry.value {
                    Value::FleetSize(size) => Some(size),
                    _ => None,
                });
            }
            // An expired heartbeat shows nothing that silence did not show before. The shell never delivers a value of
            // another kind.
            _ => {}
        }
        EventScope::Everything
    }

    fn record_heartbeat(&mut self, id: WorkerId, beat: &Heartbeat, retained: bool) -> bool {
        self.facts.roster.record_heartbeat(id, beat, retained, self.facts.now, &self.facts.clock)
    }

    /// Notes that a heartbeat of this process has come back through the watch: the broker works.
    fn on_own_heartbeat(&mut self, beat: &Heartbeat, retained: bool) {
        if !retained
            && beat.worker == self.facts.identity
            && beat.pod == self.facts.pod
            && let Some(sent) = self.fence.sent_at(beat.serial)
        {
            self.facts.clock.echoed(self.facts.now, sent);
        }
    }

    fn detect_outdated_map(&mut self, beat: &Heartbeat) {
        if beat.is_leader && beat.map_version > self.facts.map_version() {
            self.map_search.outdated_since.get_or_insert(self.facts.now);
        }
    }

    fn on_map(&mut self, map: Arc<AssignmentMap>, revision: Revision) {
        self.election.note_epoch(map.epoch);
        if self.facts.note_map(map, revision) {
            self.map_search.outdated_since = None;
            self.follow_map();
        }
    }

    fn follow_map(&mut self) {
        if let (Some(me), Some(map)) = (self.facts.identity, self.facts.map()) {
            let before = self.assignment.applied();
            if let Some(change) = self.assignment.apply_map(me.id, map, &mut self.outbox) {
                self.consumer.apply_change(&change, self.facts.policy());
            }
            self.heartbeats.is_requested |= self.assignment.applied() != before;
        }
    }

    /// Handles the answer to a write.
    pub(super) fn written(
        &mut self,
        request_id: RequestId,
        result: Result<Written, WriteError>,
    ) -> EventScope {
        if let Ok(written) = result {
            self.facts.note_broker_time(written.stored_at);
        }
        match request_id.purpose {
            Purpose::Heartbeat => {
                self.heartbeats.unanswered.remove(&request_id.serial);
                if result.is_ok() {
                    let before = self.fence.state();
                    let newest = self.outbox.last_serial();
                    self.fence.heartbeat_acknowledged(self.facts.now, request_id.serial, newest);
                    // A leaving worker may have waited for this answer.
                    if before == FenceState::Open && self.leave.is_none() {
                        return EventScope::Nothing;
                    }
                }
            }
            Purpose::Claim | Purpose::Renew => {
                let outcome = self.identity.written(request_id, result, &mut self.outbox);
                if outcome == ClaimOutcome::Renewed {
                    self.fence.claim_renewed(request_id.serial, self.outbox.last_serial());
                }
                self.on_claim_outcome(outcome);
            }
            Purpose::Lease => {
                let outcome = self.election.written(request_id, result, &self.facts, &mut self.outbox);
                self.on_election_outcome(outcome);
            }
            Purpose::TouchMap | Purpose::PublishMap => self.on_map_written(request_id, result),
            Purpose::ReleaseCursor => self.consumer.unreleased().answered(request_id),
            Purpose::LeaveRecord => self.advance_shutdown(
                ShutdownPhase::WritingLeaveRecord(request_id),
                ShutdownPhase::AwaitingLease,
            ),
            Purpose::Resign => {
                self.advance_shutdown(ShutdownPhase::Resigning(request_id), ShutdownPhase::AwaitingRenewal)
            }
            Purpose::Release => self.on_id_released(request_id, result.ok().map(|written| written.revision)),
            _ => {}
        }
        if self.leave_phase() == Some(ShutdownPhase::Done) {
            self.outbox.push(Effect::Exit);
        }
        EventScope::Everything
    }

    fn on_map_written(&mut self, request_id: RequestId, result: Result<Written, WriteError>) {
        if let Some(controller) = &mut self.controller {
            controller.written(request_id, result, &self.facts, &mut self.outbox);
        }
        // A map that this worker wrote need not return through the watch first.
        if let Some((map, revision)) = self.controller.as_ref().and_then(Controller::map).cloned() {
            self.on_map(map, revision);
        }
    }

    /// Handles the answer to a read.
    pub(super) fn fetched(&mut self, request_id: RequestId, result: Result<Option<Entry>, ReadError>) {
        match request_id.purpose {
            Purpose::ReadClaim => {
                let outcome = self.identity.fetched(request_id, result, &self.facts.clock, &mut self.outbox);
                self.on_claim_outcome(outcome);
            }
            Purpose::ReadLease => {
                let outcome = self.election.fetched(request_id, result, &self.facts);
                self.on_election_outcome(outcome);
            }
            Purpose::ReadMap if self.map_search.read == Some(request_id) => {
                self.map_search.read = None;
                if let Ok(entry) = result {
                    if let Some(Entry { value: Value::Map(map), revision, .. }) = entry {
                        self.on_map(map, revision);
                    }
                    if self.fence.map_read(self.facts.now, request_id.serial) {
                        self.leave_degraded();
                    }
                }
            }
            _ => {
                let Some(controller) = &mut self.controller else { return };
                let heartbeat = controller.fetched(request_id, result, &self.facts, &mut self.outbox);
                if let Some((id, Entry { value: Value::Heartbeat(beat), .. })) = heartbeat {
                    self.record_suspect_heartbeat(id, &beat);
                }
            }
        }
    }

    /// Records the heartbeat of a suspect that was read from the stream leader, if it is newer than the last watched one.
    fn record_suspect_heartbeat(&mut self, id: WorkerId, beat: &Heartbeat) {
        invariant!(beat.worker.is_none_or(|worker| worker.id == id), "a heartbeat is stored under its id");
        let is_newer = match (self.facts.roster.get(id), beat.worker) {
            (Some(seen), Some(worker)) => {
                (worker.incarnation, beat.serial) > (seen.incarnation, seen.serial) || beat.left && !seen.left
            }
            // A worker that was never heard: a retained value does not prove that it lives.
            _ => false,
        };
        if is_newer {
            self.record_heartbeat(id, beat, false);
        }
    }

    fn on_claim_outcome(&mut self, outcome: ClaimOutcome) {
        self.facts.identity = self.identity.holder();
        match outcome {
            ClaimOutcome::Claimed(_) => {
                self.transition(WorkerState::Election, "id claimed");
                if !self.fence.is_open(self.facts.now) {
                    self.transition(WorkerState::Degraded, "no heartbeat was acknowledged");
                }
                self.heartbeats.is_requested = true;
                self.follow_map();
            }
            ClaimOutcome::Renewed => {
                if self.facts.policy().renewal_is_proof() {
                    self.fence.record_proof(self.facts.now);
                }
            }
            ClaimOutcome::Lost(id) => {
                self.outbox.warn(Warning::IdentityLost { id: id.0 });
                self.controller = None;
                self.election.abandon();
                self.assignment.clear(&mut self.outbox);
                self.consumer.abandon(&mut self.outbox);
                self.consumer = Consumer::default();
                self.cancel_surplus_release();
                // A leaving process that claims an id again serves nothing under it.
                if self.leave.is_some() {
                    self.consumer.drain();
                }
                self.transition(WorkerState::ClaimingId, "identity lost");
            }
            ClaimOutcome::Nothing | ClaimOutcome::IdTaken => {}
        }
    }

    pub(super) fn on_election_outcome(&mut self, outcome: ElectionOutcome) {
        match outcome {
            ElectionOutcome::Won(epoch) => {
                if self.leave.is_some() || !self.fence.is_open(self.facts.now) {
                    return;
                }
                if self.facts.policy().resets_timers_on_election() {
                    self.facts.roster.reset_timers(&self.facts.clock);
                }
                invariant!(self.facts.identity.is_some(), "only a worker with an id wins an election");
                invariant!(self.controller.is_none(), "one term of leadership at a time");
                self.controller = Some(Controller::new(epoch, &self.facts, &mut self.outbox));
                self.heartbeats.is_requested = true;
            }
            ElectionOutcome::Lost => {
                self.controller = None;
                self.heartbeats.is_requested = true;
            }
            ElectionOutcome::Nothing => {}
        }
    }
}
