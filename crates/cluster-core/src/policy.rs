//! The decisions of the protocol that tests can replace by wrong ones.
//!
//! Model checking found a rule behind each function of [`Policy`]; [`ProtocolRule`] names it, and without it an invariant
//! breaks. A build with the feature `mutants` can disable one rule, to show that a test notices. All wrong answers are in
//! this file. Every other build enforces all rules, and the checks cost nothing.

use std::collections::BTreeMap;

use super::ProtocolRule;
use super::cursor::{Cursor, Position, PreviousOwner};
use super::handover::TakeoverDecision;
use super::io::RecoveryPoint;
use super::roster::Roster;
use super::suspects::SuspectRead;
use super::types::{Entry, Incarnation, LogId, Revision, Sequence, Time, Value, WorkerId, WriteTimestamp};

/// The rules that a worker enforces: all of them, except in a test that disables one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    #[cfg(feature = "mutants")]
    disabled: Option<ProtocolRule>,
}

impl Policy {
    /// Returns a policy without one rule, if this build has the feature `mutants`.
    pub fn without(rule: ProtocolRule) -> Option<Self> {
        #[cfg(feature = "mutants")]
        return Some(Self { disabled: Some(rule) });
        #[cfg(not(feature = "mutants"))]
        {
            let _ = rule;
            None
        }
    }

    #[cfg(feature = "mutants")]
    fn enforces(self, rule: ProtocolRule) -> bool {
        self.disabled != Some(rule)
    }

    #[cfg(not(feature = "mutants"))]
    const fn enforces(self, _: ProtocolRule) -> bool {
        true
    }
}

/// Liveness and the fence.
impl Policy {
    /// Returns the moment that an acknowledged heartbeat proves: its sending.
    pub(crate) fn proven_at(self, sent: Time, acknowledged: Time) -> Time {
        if self.enforces(ProtocolRule::FenceFromSending) { sent } else { acknowledged }
    }

    /// Whether a renewed claim proves as much as a heartbeat. It does not.
    pub(crate) fn renewal_is_proof(self) -> bool {
        !self.enforces(ProtocolRule::OnlyHeartbeatsProve)
    }

    /// Whether a heartbeat alone ends the fence. It does not: the claim and the map follow.
    pub(crate) fn heartbeat_ends_fence(self) -> bool {
        !self.enforces(ProtocolRule::FenceExitOrder)
    }

    /// Whether silence counts although the own heartbeat does not return. It does not.
    pub(crate) fn clock_ignores_health(self) -> bool {
        !self.enforces(ProtocolRule::HealthyClock)
    }

    /// Returns whether a watched heartbeat is only a retained value, which does not prove that its writer lives.
    pub(crate) fn is_retained(self, retained: bool) -> bool {
        retained && self.enforces(ProtocolRule::RetainedIsNotAlive)
    }

    /// Whether a new leader counts every silence from its election. It does not: every worker has counted before.
    pub(crate) fn resets_timers_on_election(self) -> bool {
        !self.enforces(ProtocolRule::EveryWorkerTimes)
    }

    /// Whether a worker that was never heard counts as crashed immediately. It is only missing.
    pub(crate) fn missing_is_crashed(self) -> bool {
        !self.enforces(ProtocolRule::MissingIsNotCrashed)
    }
}

/// Identities.
impl Policy {
    /// Whether free ids that the map names are claimed before others.
    pub(crate) fn claims_map_ids_first(self) -> bool {
        self.enforces(ProtocolRule::MapIdsFirst)
    }

    /// Returns the revision that the release of an id or a lease compares: the one that this worker wrote.
    pub(crate) fn released_revision(self, written: Revision) -> Revision {
        if self.enforces(ProtocolRule::ReleaseByCas) { written } else { Revision::ANY }
    }

    /// Whether a leaving worker releases its id before anything else. It releases it last.
    pub(crate) fn releases_id_first(self) -> bool {
        !self.enforces(ProtocolRule::ReleaseIdLast)
    }

    /// Whether a leaving worker marks its cursors as released.
    pub(crate) fn releases_cursors(self) -> bool {
        self.enforces(ProtocolRule::ReleasedOnLeave)
    }

    /// Returns the order in which the leader reads the keys of a suspect.
    pub(crate) fn suspect_reads(self) -> [SuspectRead; 2] {
        if self.enforces(ProtocolRule::ReadBeforeFree) {
            [SuspectRead::Claim, SuspectRead::Heartbeat]
        } else {
            [SuspectRead::Heartbeat, SuspectRead::Claim]
        }
    }

    /// Returns the claim that may be freed with this incarnation. A claim that was made later is its successor's.
    pub(crate) fn freeable_claim(self, claim: Option<&Entry>, suspect: Incarnation) -> Option<Revision> {
        let is_successor = |entry: &Entry| matches!(&entry.value, Value::Claim(claim) if claim.renewals == 0 && entry.stored_at > suspect.0);
        let claim =
            claim.filter(|entry| !self.enforces(ProtocolRule::ReadBeforeFree) || !is_successor(entry));
        claim.map(|entry| entry.revision)
    }
}

/// The leader.
impl Policy {
    /// Returns the grace periods that a new leader inherits from the last one.
    pub(crate) fn inherited(self, grace_periods: BTreeMap<WorkerId, Time>) -> BTreeMap<WorkerId, Time> {
        if self.enforces(ProtocolRule::InheritGracePeriods) { grace_periods } else { BTreeMap::new() }
    }

    /// Returns the start of a grace period: the arrival of the worker's own leave record.
    pub(crate) fn grace_period_start(self, left_at: Time, roster: &Roster) -> Time {
        if self.enforces(ProtocolRule::GracePeriodPerId) {
            return left_at;
        }
        roster.iter().filter_map(|(_, seen)| seen.left_at).min().unwrap_or(left_at)
    }

    /// Whether a new leader writes its epoch into the map before it calculates.
    pub(crate) fn claims_map_first(self) -> bool {
        self.enforces(ProtocolRule::ClaimMapFirst)
    }

    /// Whether a new version is above every version that any worker has seen.
    pub(crate) fn heeds_seen_versions(self) -> bool {
        self.enforces(ProtocolRule::VersionAboveAll)
    }

    /// Whether a map that an emergency left unbalanced is rebalanced later.
    pub(crate) fn rebalances_after_emergency(self) -> bool {
        self.enforces(ProtocolRule::RebalanceAfterEmergency)
    }
}

/// Takeover of cursors.
impl Policy {
    /// Whether a fenced worker gives up its cursors and takes them over again afterwards.
    pub(crate) fn fence_ends_ownership(self) -> bool {
        self.enforces(ProtocolRule::NewTokenAfterFence)
    }

    /// Whether a partition that was removed and added again needs a new fencing token.
    pub(crate) fn reassignment_needs_token(self) -> bool {
        self.enforces(ProtocolRule::NewTokenAfterReassignment)
    }

    /// Whether a cursor that names this worker is served without a takeover. It is not.
    pub(crate) fn serves_without_takeover(self, names_this_worker: bool) -> bool {
        names_this_worker && !self.enforces(ProtocolRule::NewTokenAfterReassignment)
    }

    /// Whether a cursor is taken over before the first message.
    pub(crate) fn takes_over_first(self) -> bool {
        self.enforces(ProtocolRule::TakeOverFirst)
    }

    /// Returns the decision if the previous owner reports a version above that of the new owner: read that map first.
    pub(crate) fn on_newer_report(self) -> TakeoverDecision {
        if self.enforces(ProtocolRule::ExactVersion) {
            TakeoverDecision::ReadMap
        } else {
            TakeoverDecision::TakeOver(PreviousOwner::Released)
        }
    }

    /// Returns the way in which the previous owner gave up, as it counts against the message.
    pub(crate) fn counted(self, previous: PreviousOwner) -> PreviousOwner {
        match previous {
            PreviousOwner::Crashed if !self.enforces(ProtocolRule::CrashesCount) => PreviousOwner::Released,
            previous => previous,
        }
    }

    /// Whether an owner gives up a partition whose cursor names another worker.
    pub(crate) fn owner_rereads_cursor(self) -> bool {
        self.enforces(ProtocolRule::OwnerRereadsCursor)
    }

    /// Returns the cursor for a partition whose cursor was lost: the one that continues from the result store.
    pub(crate) fn recreated(self, cursor: Cursor, recovery: Option<&RecoveryPoint>) -> Cursor {
        if self.enforces(ProtocolRule::RecoverFromStore) {
            return cursor;
        }
        let newest = recovery.map_or(Position::default(), |recovery| recovery.newest);
        let is_same_log = recovery.is_some_and(|recovery| recovery.log_id == cursor.log_id);
        let sequence = if is_same_log { newest.sequence } else { Sequence::START };
        Cursor {
            position: Position::new(newest.generation, sequence),
            state_position: recovery.map(|recovery| recovery.newest),
            message_id: None,
            write_timestamp: WriteTimestamp::default(),
            ..cursor
        }
    }
}

/// Reading, processing and committing.
impl Policy {
    /// Returns the log that an inspection found: the one that was read after the cursor.
    pub(crate) fn found_log(self, found: LogId, first: &mut FirstLog) -> LogId {
        let first = first.note(found);
        if self.enforces(ProtocolRule::LogIdAfterCursor) { found } else { first }
    }

    /// Returns the first sequence to read: the cursor's own, because that message proves that none is missing after it.
    pub(crate) fn read_from(self, committed: Sequence) -> Sequence {
        if self.enforces(ProtocolRule::ReadFromCursor) {
            committed.max(Sequence::FIRST)
        } else {
            committed.next()
        }
    }

    /// Whether a page of the log is checked for missing messages.
    pub(crate) fn verifies_log(self) -> bool {
        self.enforces(ProtocolRule::ReadFromCursor)
    }

    /// Returns the write timestamp of a message.
    pub(crate) fn write_timestamp(self, cursor: &Cursor, stored_at: u64) -> WriteTimestamp {
        if self.enforces(ProtocolRule::MonotonicTimestamps) {
            cursor.next_write_timestamp(stored_at)
        } else {
            WriteTimestamp(stored_at)
        }
    }

    /// Whether the handler must ignore its cache.
    pub(crate) fn ignores_cache(self, cache_valid: bool) -> bool {
        !cache_valid && self.enforces(ProtocolRule::CacheDropped)
    }

    /// Returns whether the cache is valid after a takeover, or after a cursor write that was refused or not answered. It is
    /// not.
    pub(crate) fn keeps_cache(self, cache_valid: bool) -> bool {
        cache_valid && !self.enforces(ProtocolRule::CacheDropped)
    }

    /// Returns whether the cache is valid after a commit: if the write was answered.
    pub(crate) fn cache_after_commit(self, answered: bool) -> bool {
        answered || !self.enforces(ProtocolRule::CacheDropped)
    }

    /// Whether a commit without an answer is repeated by processing the message again. It is verified instead.
    pub(crate) fn repeats_unknown_commit(self) -> bool {
        !self.enforces(ProtocolRule::VerifyUnknownFirst)
    }

    /// Whether the next attempt must be isolated.
    pub(crate) fn needs_isolation(self, cursor: &Cursor) -> bool {
        self.enforces(ProtocolRule::IsolateFirst) && cursor.needs_isolation() && !cursor.isolated
    }

    /// Returns the cursor after a takeover. Too many worker crashes alone dead-letter nothing.
    pub(crate) fn judged(self, taken: Cursor) -> Cursor {
        if self.enforces(ProtocolRule::IsolateFirst) || !taken.needs_isolation() {
            return taken;
        }
        Cursor { dead_letter_reason: Some("too many failures and worker crashes".into()), ..taken }
    }

    /// Whether a dead letter is recorded in the cursor before anything else.
    pub(crate) fn records_dead_letter_first(self) -> bool {
        self.enforces(ProtocolRule::RecordDeadLetterFirst)
    }

    /// Whether a dead letter stores the unchanged handler state at its position.
    pub(crate) fn dead_letter_writes_state(self) -> bool {
        self.enforces(ProtocolRule::DeadLetterWritesState)
    }

    /// Returns the position under which a dead letter is published.
    pub(crate) fn dead_letter_position(self, position: Position) -> Position {
        if self.enforces(ProtocolRule::Generations) {
            position
        } else {
            Position { generation: 0, ..position }
        }
    }
}

/// The first log that a worker found: a worker without [`ProtocolRule::LogIdAfterCursor`] never looks again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FirstLog {
    #[cfg(feature = "mutants")]
    log_id: Option<LogId>,
}

impl FirstLog {
    #[cfg(feature = "mutants")]
    fn note(&mut self, found: LogId) -> LogId {
        *self.log_id.get_or_insert(found)
    }

    #[cfg(not(feature = "mutants"))]
    fn note(&mut self, found: LogId) -> LogId {
        found
    }
}
