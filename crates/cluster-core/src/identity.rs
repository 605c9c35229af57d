//! The stable id: finding one, keeping it, giving it back.
//!
//! Ids are claimed by atomic create or compare-and-swap, never by a plain put. Whoever finds another holder in its own
//! claim has lost its identity. The decision which id to try is a function of what the watch has shown.

use std::collections::BTreeMap;

use super::config::Config;
use super::facts::Facts;
use super::health::{HealthyClock, HealthyInstant};
use super::io::{Condition, Purpose, ReadError, RequestId, WriteError, Written};
use super::outbox::Outbox;
use super::types::{Claim, Entry, Incarnation, Key, Pod, Revision, Value, WorkerId, WorkerIncarnation};

/// A claim as the watch showed it.
#[derive(Clone, Debug)]
struct ObservedClaim {
    pod: Pod,
    revision: Revision,
    /// When it last changed, on the healthy clock.
    changed: HealthyInstant,
}

/// Where the process stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClaimState {
    /// No id.
    None,
    /// A claim is on its way.
    Claiming { id: WorkerId, request_id: RequestId },
    /// A claim had no answer; the key is being read.
    Settling { id: WorkerId, request_id: RequestId },
    /// An id is held.
    Held(HeldId),
}

/// The id a process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldId {
    holder: WorkerIncarnation,
    revision: Revision,
    renewals: u64,
    /// A renewal or the reading after it, on its way.
    pending: Option<RequestId>,
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimOutcome {
    /// Nothing that matters to others.
    Nothing,
    /// An id is ours.
    Claimed(WorkerIncarnation),
    /// The id was taken by somebody else; look for another.
    IdTaken,
    /// The claim was renewed.
    Renewed,
    /// Somebody else holds our id, or nobody does any more.
    Lost(WorkerId),
}

#[derive(Debug)]
pub(super) struct Identity {
    pod: Pod,
    claims: BTreeMap<WorkerId, ObservedClaim>,
    /// The newest incarnation seen of each id.
    incarnations: BTreeMap<WorkerId, Incarnation>,
    /// Up to which revision an id is ours no more, given back or removed: a late answer may still show it as ours.
    released: BTreeMap<WorkerId, Revision>,
    stage: ClaimState,
}

impl Identity {
    pub(super) fn new(pod: Pod) -> Self {
        Self {
            pod,
            claims: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            released: BTreeMap::new(),
            stage: ClaimState::None,
        }
    }

    pub(super) fn holder(&self) -> Option<WorkerIncarnation> {
        match &self.stage {
            ClaimState::Held(held) => Some(held.holder),
            _ => None,
        }
    }

    /// Whether a request about the id is on its way.
    pub(super) fn is_busy(&self) -> bool {
        match &self.stage {
            ClaimState::None => false,
            ClaimState::Claiming { .. } | ClaimState::Settling { .. } => true,
            ClaimState::Held(held) => held.pending.is_some(),
        }
    }

    /// The watch shows a claim, or that it is gone.
    pub(super) fn watched(
        &mut self,
        id: WorkerId,
        entry: Option<&Entry>,
        clock: &HealthyClock,
        outbox: &mut Outbox,
    ) -> ClaimOutcome {
        let Some((entry, claim)) = entry.and_then(|entry| claim_of(entry).map(|claim| (entry, claim))) else {
            if let Some(gone) = self.claims.remove(&id).filter(|claim| claim.pod == self.pod) {
                self.released.insert(id, gone.revision);
            }
            return ClaimOutcome::Nothing;
        };
        // Our own claim may be shown before it is answered: that is our next incarnation, not an earlier one.
        let begins = matches!(self.stage, ClaimState::Claiming { id: wanted, .. } | ClaimState::Settling { id: wanted, .. } if wanted == id)
            && claim.pod == self.pod;
        if !begins {
            let newest = self.incarnations.entry(id).or_default();
            *newest = (*newest).max(Incarnation(entry.stored_at));
        }
        self.remember(id, Some(entry), clock);
        match &self.stage {
            ClaimState::Held(held)
                if held.holder.id == id && claim.pod != self.pod && entry.revision > held.revision =>
            {
                self.lose(id)
            }
            // A late write of ours landed on an id that we do not hold.
            ClaimState::Held(held) if held.holder.id != id && claim.pod == self.pod => {
                outbox.delete(Purpose::DeleteStrayClaim, Key::Claim(id), entry.revision);
                ClaimOutcome::Nothing
            }
            _ => ClaimOutcome::Nothing,
        }
    }

    /// Claims the best id below `limit`. Returns false if there is none to claim.
    pub(super) fn search(&mut self, limit: u32, facts: &Facts, outbox: &mut Outbox) -> bool {
        invariant!(self.stage == ClaimState::None, "a process claims one id at a time");
        let Some((id, condition)) = self.pick_id(limit, facts) else { return false };
        self.claim(id, condition, outbox);
        true
    }

    fn claim(&mut self, id: WorkerId, condition: Condition, outbox: &mut Outbox) {
        let claim = Value::Claim(Claim { pod: self.pod.clone(), renewals: 0 });
        let request_id = outbox.write(Purpose::Claim, Key::Claim(id), claim, condition);
        self.stage = ClaimState::Claiming { id, request_id };
    }

    /// Returns the id to claim and the condition of the write: an id that this pod held before; a free one that the map
    /// names; any free one; one whose claim is stale.
    fn pick_id(&self, limit: u32, facts: &Facts) -> Option<(WorkerId, Condition)> {
        let ids = || (0..limit).map(WorkerId);
        let own = ids().find_map(|id| {
            let claim = self.claims.get(&id).filter(|claim| claim.pod.uid == self.pod.uid)?;
            Some((id, Condition::Revision(claim.revision)))
        });
        let free = |id: &WorkerId| !self.claims.contains_key(id);
        let is_named = |id: &WorkerId| facts.map().is_some_and(|map| map.workers.contains(id));
        let map_first = facts.policy().claims_map_ids_first();
        let in_map = || ids().filter(|id| map_first && is_named(id)).find(free);
        let any = || ids().find(free);
        let stale = || {
            ids().find_map(|id| {
                let claim = self.claims.get(&id)?;
                let is_stale = facts.clock.since(claim.changed) >= facts.config.claim_expiry;
                is_stale.then_some((id, Condition::Revision(claim.revision)))
            })
        };
        own.or_else(|| in_map().or_else(any).map(|id| (id, Condition::Absent))).or_else(stale)
    }

    /// Renews the claim, unless a renewal has no answer yet.
    pub(super) fn renew(&mut self, outbox: &mut Outbox) {
        let ClaimState::Held(held) = &mut self.stage else { return };
        if held.pending.is_some() {
            return;
        }
        held.renewals += 1;
        let claim = Value::Claim(Claim { pod: self.pod.clone(), renewals: held.renewals });
        let condition = Condition::Revision(held.revision);
        held.pending = Some(outbox.write(Purpose::Renew, Key::Claim(held.holder.id), claim, condition));
    }

    /// Releases the id: deletes exactly the revision that this worker wrote.
    pub(super) fn release(&mut self, config: &Config, outbox: &mut Outbox) -> Option<RequestId> {
        let ClaimState::Held(held) = &self.stage else { return None };
        invariant!(
            held.pending.is_none() || config.policy.releases_id_first(),
            "the answer to a renewal comes before the release"
        );
        let revision = config.policy.released_revision(held.revision);
        Some(outbox.delete(Purpose::Release, Key::Claim(held.holder.id), revision))
    }

    /// The id has been given back, if that was answered by this revision. What is older of it is ours no more.
    pub(super) fn released(&mut self, by: Option<Revision>) {
        invariant!(matches!(self.stage, ClaimState::Held(_)), "only a held id is released: {:?}", self.stage);
        if let (ClaimState::Held(held), Some(revision)) = (&self.stage, by) {
            self.released.insert(held.holder.id, revision);
        }
        self.stage = ClaimState::None;
    }

    /// A claim or a renewal was answered.
    pub(super) fn written(
        &mut self,
        request_id: RequestId,
        result: Result<Written, WriteError>,
        outbox: &mut Outbox,
    ) -> ClaimOutcome {
        match &self.stage {
            &ClaimState::Claiming { id, request_id: expected } if expected == request_id => match result {
                // An answer may come so late that the watch has shown who came after us.
                Ok(written) if self.was_superseded(id, written.revision) => {
                    self.stage = ClaimState::None;
                    ClaimOutcome::IdTaken
                }
                Ok(written) => self.hold(id, written),
                Err(WriteError::Failed) => {
                    self.stage = ClaimState::None;
                    ClaimOutcome::IdTaken
                }
                // Somebody was faster, or we were and do not know it: only the key itself tells.
                Err(WriteError::Conflict | WriteError::Unknown) => {
                    let request_id = outbox.read(Purpose::ReadClaim, Key::Claim(id));
                    self.stage = ClaimState::Settling { id, request_id };
                    ClaimOutcome::Nothing
                }
            },
            ClaimState::Held(held) if held.pending == Some(request_id) => match result {
                Ok(written) => self.renewed(written),
                // Expired, taken, or an earlier renewal landed late: only the key itself knows.
                Err(_) => {
                    let request_id = outbox.read(Purpose::ReadClaim, Key::Claim(held.holder.id));
                    self.set_pending(request_id);
                    ClaimOutcome::Nothing
                }
            },
            _ => ClaimOutcome::Nothing,
        }
    }

    /// The key was read after an answer that did not come or was a refusal.
    pub(super) fn fetched(
        &mut self,
        request_id: RequestId,
        entry: Result<Option<Entry>, ReadError>,
        clock: &HealthyClock,
        outbox: &mut Outbox,
    ) -> ClaimOutcome {
        match &self.stage {
            &ClaimState::Settling { id, request_id: expected } if expected == request_id => match entry {
                Ok(Some(entry)) if self.is_mine(&entry) && !self.was_given_back(id, &entry) => {
                    self.hold(id, Written { revision: entry.revision, stored_at: entry.stored_at })
                }
                Ok(entry) => {
                    // Not ours now; if it lands later, the watch shows it and it is tidied away or taken as our own.
                    self.stage = ClaimState::None;
                    self.remember(id, entry.as_ref(), clock);
                    ClaimOutcome::IdTaken
                }
                Err(_) => {
                    let request_id = outbox.read(Purpose::ReadClaim, Key::Claim(id));
                    self.stage = ClaimState::Settling { id, request_id };
                    ClaimOutcome::Nothing
                }
            },
            ClaimState::Held(held) if held.pending == Some(request_id) => match entry {
                Ok(Some(entry)) if self.is_mine(&entry) => {
                    // Ours when it was read; only a swap proves that it still is.
                    self.renewed(Written { revision: entry.revision, stored_at: entry.stored_at });
                    ClaimOutcome::Nothing
                }
                Ok(Some(_)) => {
                    let id = held.holder.id;
                    self.lose(id)
                }
                Ok(None) => {
                    // It has expired: claim it again, which makes a new incarnation.
                    let id = held.holder.id;
                    self.claim(id, Condition::Absent, outbox);
                    ClaimOutcome::Lost(id)
                }
                Err(_) => {
                    let request_id = outbox.read(Purpose::ReadClaim, Key::Claim(held.holder.id));
                    self.set_pending(request_id);
                    ClaimOutcome::Nothing
                }
            },
            _ => ClaimOutcome::Nothing,
        }
    }

    /// Notes who holds an id. A revision that is known already has not changed.
    fn remember(&mut self, id: WorkerId, entry: Option<&Entry>, clock: &HealthyClock) {
        let Some((entry, claim)) = entry.and_then(|entry| claim_of(entry).map(|claim| (entry, claim))) else {
            self.claims.remove(&id);
            return;
        };
        if self.claims.get(&id).is_none_or(|known| known.revision < entry.revision) {
            let seen =
                ObservedClaim { pod: claim.pod.clone(), revision: entry.revision, changed: clock.now() };
            self.claims.insert(id, seen);
        }
    }

    fn hold(&mut self, id: WorkerId, written: Written) -> ClaimOutcome {
        // Above any incarnation seen of this id, also where the broker's clock has stepped back.
        let seen = self.incarnations.get(&id).copied().unwrap_or_default();
        let incarnation = Incarnation(written.stored_at).max(seen.next());
        invariant!(incarnation > seen, "incarnation {incarnation:?} of {id} is above {seen:?}");
        let holder = WorkerIncarnation { id, incarnation };
        self.incarnations.insert(id, incarnation);
        self.stage =
            ClaimState::Held(HeldId { holder, revision: written.revision, renewals: 0, pending: None });
        ClaimOutcome::Claimed(holder)
    }

    fn renewed(&mut self, written: Written) -> ClaimOutcome {
        if let ClaimState::Held(held) = &mut self.stage {
            invariant!(held.pending.is_some(), "a renewal was sent before it is answered");
            held.revision = written.revision;
            held.pending = None;
        }
        ClaimOutcome::Renewed
    }

    fn lose(&mut self, id: WorkerId) -> ClaimOutcome {
        self.stage = ClaimState::None;
        ClaimOutcome::Lost(id)
    }

    fn set_pending(&mut self, request_id: RequestId) {
        if let ClaimState::Held(held) = &mut self.stage {
            held.pending = Some(request_id);
        }
    }

    /// Whether the watch has shown that a claim of ours was removed or taken since.
    fn was_superseded(&self, id: WorkerId, revision: Revision) -> bool {
        self.released.get(&id).is_some_and(|by| *by >= revision)
            || self.claims.get(&id).is_some_and(|claim| claim.revision > revision && claim.pod != self.pod)
    }

    fn was_given_back(&self, id: WorkerId, entry: &Entry) -> bool {
        self.released.get(&id).is_some_and(|by| entry.revision <= *by)
    }

    fn is_mine(&self, entry: &Entry) -> bool {
        claim_of(entry).is_some_and(|claim| claim.pod == self.pod)
    }
}

fn claim_of(entry: &Entry) -> Option<&Claim> {
    match &entry.value {
        Value::Claim(claim) => Some(claim),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::healthy_facts;
    use crate::io::Effect;

    const ID: WorkerId = WorkerId(0);

    fn pod(name: &str) -> Pod {
        Pod { name: name.into(), uid: name.into() }
    }

    fn claim(name: &str, revision: u64) -> Entry {
        let value = Value::Claim(Claim { pod: pod(name), renewals: 0 });
        Entry { value, revision: Revision(revision), stored_at: revision }
    }

    /// What becomes of a claim whose answer, by revision 5, comes after the watch has shown these.
    fn answered_after(shown: &[Option<Entry>]) -> ClaimOutcome {
        let (facts, mut outbox) = (healthy_facts(5), Outbox::default());
        let mut identity = Identity::new(pod("anna"));
        assert!(identity.search(1, &facts, &mut outbox));
        for entry in shown {
            identity.watched(ID, entry.as_ref(), &facts.clock, &mut outbox);
        }
        let written = Written { revision: Revision(5), stored_at: 5 };
        let request_id = RequestId { purpose: Purpose::Claim, serial: 1 };
        identity.written(request_id, Ok(written), &mut outbox)
    }

    #[test]
    fn a_claim_that_the_watch_shows_before_its_answer_is_held() {
        assert!(matches!(answered_after(&[Some(claim("anna", 5))]), ClaimOutcome::Claimed(_)));
    }

    #[test]
    fn a_late_answer_does_not_beat_a_removal_or_a_successor_that_the_watch_has_shown() {
        assert_eq!(answered_after(&[Some(claim("anna", 5)), None]), ClaimOutcome::IdTaken);
        assert_eq!(
            answered_after(&[Some(claim("anna", 5)), None, Some(claim("berta", 7))]),
            ClaimOutcome::IdTaken
        );
    }

    /// A process whose pod is `anna`, with a worker pool of three ids.
    struct Fixture {
        identity: Identity,
        facts: Facts,
        outbox: Outbox,
    }

    impl Fixture {
        fn new() -> Self {
            Self { identity: Identity::new(pod("anna")), facts: healthy_facts(5), outbox: Outbox::default() }
        }

        /// Returns a process that holds id 0 at revision 5.
        fn holding() -> Self {
            let mut fixture = Self::new();
            fixture.search();
            assert!(matches!(fixture.written(1, Ok(5)).0, ClaimOutcome::Claimed(_)));
            fixture
        }

        fn search(&mut self) -> Vec<Effect> {
            self.identity.search(3, &self.facts, &mut self.outbox);
            self.outbox.take()
        }

        fn shows(&mut self, id: u32, entry: Option<Entry>) -> (ClaimOutcome, Vec<Effect>) {
            let outcome =
                self.identity.watched(WorkerId(id), entry.as_ref(), &self.facts.clock, &mut self.outbox);
            (outcome, self.outbox.take())
        }

        fn written(&mut self, serial: u64, result: Result<u64, WriteError>) -> (ClaimOutcome, Vec<Effect>) {
            let purpose = if serial == 1 { Purpose::Claim } else { Purpose::Renew };
            let result = result.map(|revision| Written { revision: Revision(revision), stored_at: revision });
            let outcome = self.identity.written(RequestId { purpose, serial }, result, &mut self.outbox);
            (outcome, self.outbox.take())
        }

        fn fetched(&mut self, serial: u64, found: Option<Entry>) -> (ClaimOutcome, Vec<Effect>) {
            let request_id = RequestId { purpose: Purpose::ReadClaim, serial };
            let outcome = self.identity.fetched(request_id, Ok(found), &self.facts.clock, &mut self.outbox);
            (outcome, self.outbox.take())
        }

        fn renew(&mut self) -> Vec<Effect> {
            self.identity.renew(&mut self.outbox);
            self.outbox.take()
        }
    }

    fn write(purpose: Purpose, serial: u64, id: u32, renewals: u64, condition: Condition) -> Effect {
        Effect::Write {
            request_id: RequestId { purpose, serial },
            key: Key::Claim(WorkerId(id)),
            value: Value::Claim(Claim { pod: pod("anna"), renewals }),
            condition,
        }
    }

    fn read(serial: u64, id: u32) -> Effect {
        let request_id = RequestId { purpose: Purpose::ReadClaim, serial };
        Effect::Read { request_id, key: Key::Claim(WorkerId(id)) }
    }

    #[test]
    fn the_lowest_free_id_is_created() {
        let mut fixture = Fixture::new();
        fixture.shows(0, Some(claim("berta", 3)));
        assert_eq!(fixture.search(), [write(Purpose::Claim, 1, 1, 0, Condition::Absent)]);
    }

    #[test]
    fn an_earlier_claim_of_the_own_pod_is_taken_over_immediately() {
        let mut fixture = Fixture::new();
        fixture.shows(2, Some(claim("anna", 3)));
        let taken = write(Purpose::Claim, 1, 2, 0, Condition::Revision(Revision(3)));
        assert_eq!(fixture.search(), [taken]);
    }

    #[test]
    fn a_stale_claim_is_taken_over_only_if_no_id_is_free() {
        let mut fixture = Fixture::new();
        (0..3).for_each(|id| drop(fixture.shows(id, Some(claim("berta", 3)))));
        assert_eq!(fixture.search(), [], "none is stale yet");
        for second in 6..=36 {
            let now = crate::types::Time::from_secs(second);
            fixture.facts.clock.echoed(now, now);
        }
        let taken = write(Purpose::Claim, 1, 0, 0, Condition::Revision(Revision(3)));
        assert_eq!(fixture.search(), [taken]);
    }

    #[test]
    fn a_claim_is_renewed_and_released_at_the_revision_that_was_written() {
        let mut fixture = Fixture::holding();
        assert_eq!(fixture.renew(), [write(Purpose::Renew, 2, 0, 1, Condition::Revision(Revision(5)))]);
        assert_eq!(fixture.renew(), [], "one renewal at a time");
        assert_eq!(fixture.written(2, Ok(6)), (ClaimOutcome::Renewed, vec![]));
        let request_id = fixture.identity.release(&fixture.facts.config, &mut fixture.outbox);
        let request_id = request_id.expect("an id is held");
        let deleted = Effect::Delete { request_id, key: Key::Claim(ID), revision: Revision(6) };
        assert_eq!(fixture.outbox.take(), [deleted]);
    }

    #[test]
    fn a_refused_or_unanswered_claim_is_settled_by_a_read() {
        for error in [WriteError::Conflict, WriteError::Unknown] {
            let mut fixture = Fixture::new();
            fixture.search();
            assert_eq!(fixture.written(1, Err(error)), (ClaimOutcome::Nothing, vec![read(2, 0)]));
            let (outcome, effects) = fixture.fetched(2, Some(claim("anna", 5)));
            assert!(matches!(outcome, ClaimOutcome::Claimed(_)) && effects.is_empty(), "{outcome:?}");
            let mut fixture = Fixture::new();
            fixture.search();
            fixture.written(1, Err(error));
            assert_eq!(fixture.fetched(2, Some(claim("berta", 5))), (ClaimOutcome::IdTaken, vec![]));
        }
    }

    #[test]
    fn another_pod_in_the_own_claim_means_that_the_id_is_lost() {
        let mut fixture = Fixture::holding();
        assert_eq!(fixture.shows(0, Some(claim("berta", 4))).0, ClaimOutcome::Nothing, "an old value");
        assert_eq!(fixture.shows(0, Some(claim("berta", 7))), (ClaimOutcome::Lost(ID), vec![]));
    }

    #[test]
    fn an_expired_claim_is_created_again_as_a_new_incarnation() {
        let mut fixture = Fixture::holding();
        fixture.renew();
        assert_eq!(fixture.written(2, Err(WriteError::Conflict)), (ClaimOutcome::Nothing, vec![read(3, 0)]));
        let created = write(Purpose::Claim, 4, 0, 0, Condition::Absent);
        assert_eq!(fixture.fetched(3, None), (ClaimOutcome::Lost(ID), vec![created]));
    }

    #[test]
    fn a_claim_that_a_late_write_left_on_another_id_is_deleted() {
        let mut fixture = Fixture::holding();
        let request_id = RequestId { purpose: Purpose::DeleteStrayClaim, serial: 2 };
        let deleted = Effect::Delete { request_id, key: Key::Claim(WorkerId(1)), revision: Revision(8) };
        assert_eq!(fixture.shows(1, Some(claim("anna", 8))), (ClaimOutcome::Nothing, vec![deleted]));
    }
}
