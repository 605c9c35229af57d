//! The check of a silent worker before the leader treats it as crashed. The leader reads its claim, then its heartbeat, both
//! from the stream leader. Only then it frees exactly that claim, or gives its partitions to other workers.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::io::{Purpose, ReadError, RequestId};
use super::outbox::Outbox;
use super::types::{Entry, Incarnation, Key, Revision, Time, WorkerId};

/// A key of a suspect that the leader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuspectRead {
    Claim,
    Heartbeat,
}

/// The progress of the liveness check of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SuspectCheck {
    /// A key is being read: the one at index `step` of the policy's order.
    Reading { request_id: RequestId, step: usize, claim: Option<Revision> },
    /// The worker has crashed. Its claim, if it still had one.
    Confirmed { claim: Option<Revision> },
    /// Its id was freed for a standby, which has until then to claim it.
    Freed { until: Time },
}

/// The workers whose silence is being checked.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    checks: BTreeMap<WorkerId, (Incarnation, SuspectCheck)>,
}

impl Suspects {
    /// Begins a check unless one is in progress for this incarnation of the id.
    pub(crate) fn suspect(
        &mut self,
        id: WorkerId,
        incarnation: Incarnation,
        facts: &Facts,
        outbox: &mut Outbox,
    ) {
        if self.checks.get(&id).is_some_and(|(known, _)| *known == incarnation) {
            return;
        }
        let request_id = read(facts.policy().suspect_reads()[0], id, outbox);
        let check = SuspectCheck::Reading { request_id, step: 0, claim: None };
        self.checks.insert(id, (incarnation, check));
    }

    /// Ends the checks of workers that are heard again.
    pub(crate) fn retain(&mut self, still_silent: impl Fn(WorkerId) -> bool) {
        self.checks.retain(|&id, _| still_silent(id));
    }

    /// Handles an answer about a suspect. Returns the heartbeat that was read: the roster decides whether it is newer than
    /// the last one heard.
    pub(crate) fn fetched(
        &mut self,
        request_id: RequestId,
        result: Result<Option<Entry>, ReadError>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) -> Option<(WorkerId, Entry)> {
        let (id, incarnation, step, claim) =
            self.checks.iter().find_map(|(&id, &(incarnation, check))| match check {
                SuspectCheck::Reading { request_id: asked, step, claim } if asked == request_id => {
                    Some((id, incarnation, step, claim))
                }
                _ => None,
            })?;
        let Ok(entry) = result else {
            // An error does not prove a crash: read again.
            self.checks.remove(&id);
            self.suspect(id, incarnation, facts, outbox);
            return None;
        };
        let reads = facts.policy().suspect_reads();
        let (claim, heartbeat) = match reads[step] {
            SuspectRead::Claim => (facts.policy().freeable_claim(entry.as_ref(), incarnation), None),
            SuspectRead::Heartbeat => (claim, entry),
        };
        let check = match reads.get(step + 1) {
            Some(&next) => {
                SuspectCheck::Reading { request_id: read(next, id, outbox), step: step + 1, claim }
            }
            None => SuspectCheck::Confirmed { claim },
        };
        self.checks.insert(id, (incarnation, check));
        heartbeat.map(|heartbeat| (id, heartbeat))
    }

    /// Frees the ids of workers that are confirmed dead for standbys, each exactly at the revision that was read.
    pub(crate) fn free_for_standby(&mut self, until: Time, outbox: &mut Outbox) {
        for (&id, (_, check)) in &mut self.checks {
            if let SuspectCheck::Confirmed { claim } = *check {
                if let Some(revision) = claim {
                    outbox.delete(Purpose::FreeId, Key::Claim(id), revision);
                }
                *check = SuspectCheck::Freed { until };
            }
        }
    }

    /// Whether the worker is confirmed dead and the wait for a standby is over.
    pub(crate) fn is_confirmed_dead(&self, id: WorkerId, now: Time) -> bool {
        match self.checks.get(&id) {
            Some((_, SuspectCheck::Confirmed { .. })) => true,
            Some((_, SuspectCheck::Freed { until })) => now >= *until,
            _ => false,
        }
    }

    /// Whether a worker is confirmed dead and its id is not freed yet.
    pub(crate) fn has_confirmed(&self) -> bool {
        self.checks.values().any(|(_, check)| matches!(check, SuspectCheck::Confirmed { .. }))
    }

    /// Returns the end of the next wait for a standby.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let waits = self.checks.values().filter_map(|(_, check)| match check {
            SuspectCheck::Freed { until } => Some(*until),
            _ => None,
        });
        waits.min()
    }
}

fn read(key: SuspectRead, id: WorkerId, outbox: &mut Outbox) -> RequestId {
    match key {
        SuspectRead::Claim => outbox.read(Purpose::SuspectClaim, Key::Claim(id)),
        SuspectRead::Heartbeat => outbox.read(Purpose::SuspectHeartbeat, Key::Heartbeat(id)),
    }
}

#[cfg(test)]
#[path = "suspects_test.rs"]
mod tests;
