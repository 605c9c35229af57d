//! The stable id: finding one, keeping it, giving it back.
//!
//! Ids are claimed by atomic create or compare-and-swap, never by a plain put. Whoever finds another holder in its own
//! claim has lost its identity. The decision which id to try is a function of what the watch has shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::config::Config;
use super::health::{HealthyClock, HealthyInstant};
use super::io::{Condition, Effect, Purpose, ReadError, RequestId, RequestIds, WriteError, Written};
use super::types::{Claim, Entry, Incarnation, Key, Pod, Revision, Value, WorkerId, WorkerIncarnation};

/// A claim as the watch showed it.
#[derive(Clone, Debug)]
struct ObservedClaim {
    pod: Pod,
    revision: Revision,
    /// When it last changed, on the healthy clock.
    changed: HealthyInstant,
}

/// What a search for an id may use.
pub(super) struct IdSearch<'a> {
    /// Ids named in the map: their partitions wait for them.
    pub(super) in_map: &'a BTreeSet<WorkerId>,
    /// Ids from 0 to this, exclusive.
    pub(super) limit: u32,
    /// A claim unchanged for this long is nobody's.
    pub(super) stale: Duration,
    /// Whether ids named in the map come first.
    pub(super) map_first: bool,
    /// The healthy clock.
    pub(super) clock: &'a HealthyClock,
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
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
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
                let request_id = request_ids.next(Purpose::DeleteStrayClaim);
                out.push(Effect::Delete { request_id, key: Key::Claim(id), revision: entry.revision });
                ClaimOutcome::Nothing
            }
            _ => ClaimOutcome::Nothing,
        }
    }

    /// Tries the best id there is. Gives false where there is none to try.
    pub(super) fn search(
        &mut self,
        search: &IdSearch<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some((id, condition)) = self.pick_id(search) else { return false };
        let request_id = request_ids.next(Purpose::Claim);
        let value = Value::Claim(Claim { pod: self.pod.clone(), renewals: 0 });
        out.push(Effect::Write { request_id, key: Key::Claim(id), value, condition });
        self.stage = ClaimState::Claiming { id, request_id };
        true
    }

    /// Which id to try, and how: one that our own pod held before; a free one that the map names; any free one; one
    /// whose holder has been silent for long.
    fn pick_id(&self, search: &IdSearch<'_>) -> Option<(WorkerId, Condition)> {
        let ids = || (0..search.limit).map(WorkerId);
        let own = ids().find_map(|id| {
            let claim = self.claims.get(&id).filter(|claim| claim.pod.uid == self.pod.uid)?;
            Some((id, Condition::Revision(claim.revision)))
        });
        let free = |id: &WorkerId| !self.claims.contains_key(id);
        let in_map = || ids().filter(|id| search.map_first && search.in_map.contains(id)).find(free);
        let any = || ids().find(free);
        let stale = || {
            ids().find_map(|id| {
                let claim = self.claims.get(&id)?;
                let silent = search.clock.since(claim.changed) >= search.stale;
                silent.then_some((id, Condition::Revision(claim.revision)))
            })
        };
        own.or_else(|| in_map().or_else(any).map(|id| (id, Condition::Absent))).or_else(stale)
    }

    /// Renews the claim, unless that is already on its way.
    pub(super) fn renew(&mut self, request_ids: &mut RequestIds, out: &mut Vec<Effect>) {
        let ClaimState::Held(held) = &mut self.stage else { return };
        if held.pending.is_some() {
            return;
        }
        let request_id = request_ids.next(Purpose::Renew);
        held.pending = Some(request_id);
        held.renewals += 1;
        let value = Value::Claim(Claim { pod: self.pod.clone(), renewals: held.renewals });
        let condition = Condition::Revision(held.revision);
        out.push(Effect::Write { request_id, key: Key::Claim(held.holder.id), value, condition });
    }

    /// Gives the id back: removes exactly the revision we wrote. Must not be called while a renewal is on its way.
    pub(super) fn release(
        &mut self,
        config: &Config,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) -> Option<RequestId> {
        let ClaimState::Held(held) = &self.stage else { return None };
        let request_id = request_ids.next(Purpose::Release);
        let revision = config.delete_revision(held.revision);
        out.push(Effect::Delete { request_id, key: Key::Claim(held.holder.id), revision });
        Some(request_id)
    }

    /// The id has been given back, if that was answered by this revision. What is older of it is ours no more.
    pub(super) fn released(&mut self, by: Option<Revision>) {
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
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
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
                    let request_id = request_ids.next(Purpose::ReadClaim);
                    out.push(Effect::Read { request_id, key: Key::Claim(id) });
                    self.stage = ClaimState::Settling { id, request_id };
                    ClaimOutcome::Nothing
                }
            },
            ClaimState::Held(held) if held.pending == Some(request_id) => match result {
                Ok(written) => self.renewed(written),
                // Expired, taken, or an earlier renewal landed late: only the key itself knows.
                Err(_) => {
                    let request_id = request_ids.next(Purpose::ReadClaim);
                    out.push(Effect::Read { request_id, key: Key::Claim(held.holder.id) });
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
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
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
                    let request_id = request_ids.next(Purpose::ReadClaim);
                    out.push(Effect::Read { request_id, key: Key::Claim(id) });
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
                    let request_id = request_ids.next(Purpose::Claim);
                    let value = Value::Claim(Claim { pod: self.pod.clone(), renewals: 0 });
                    out.push(Effect::Write {
                        request_id,
                        key: Key::Claim(id),
                        value,
                        condition: Condition::Absent,
                    });
                    self.stage = ClaimState::Claiming { id, request_id };
                    ClaimOutcome::Lost(id)
                }
                Err(_) => {
                    let request_id = request_ids.next(Purpose::ReadClaim);
                    out.push(Effect::Read { request_id, key: Key::Claim(held.holder.id) });
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
        let holder = WorkerIncarnation { id, incarnation };
        self.incarnations.insert(id, incarnation);
        self.stage =
            ClaimState::Held(HeldId { holder, revision: written.revision, renewals: 0, pending: None });
        ClaimOutcome::Claimed(holder)
    }

    fn renewed(&mut self, written: Written) -> ClaimOutcome {
        if let ClaimState::Held(held) = &mut self.stage {
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
    use crate::roster::tests::healthy_clock;

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
        let (clock, mut request_ids, mut out) = (healthy_clock(5), RequestIds::default(), Vec::new());
        let mut identity = Identity::new(pod("anna"));
        let search = IdSearch {
            in_map: &BTreeSet::new(),
            limit: 1,
            stale: Duration::from_secs(30),
            map_first: true,
            clock: &clock,
        };
        assert!(identity.search(&search, &mut request_ids, &mut out));
        for entry in shown {
            identity.watched(ID, entry.as_ref(), &clock, &mut request_ids, &mut out);
        }
        let written = Written { revision: Revision(5), stored_at: 5 };
        let request_id = RequestId { purpose: Purpose::Claim, serial: 1 };
        identity.written(request_id, Ok(written), &mut request_ids, &mut out)
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
}
