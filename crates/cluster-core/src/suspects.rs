//! Before a silent worker is declared dead: its claim is read, then its heartbeat, both from the stream leader, and only
//! then is exactly that claim freed or its work given away.

use std::collections::BTreeMap;

use super::ProtocolRule;
use super::config::Config;
use super::io::{Effect, Purpose, ReadError, RequestId, RequestIds};
use super::types::{Entry, Incarnation, Key, Revision, Time, Value, WorkerId};

/// The progress of the liveness check of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SuspectCheck {
    ReadingClaim(RequestId),
    /// The wrong order: only in a test that takes the rule out.
    HeartbeatFirst(RequestId),
    ClaimLast(RequestId),
    ReadingHeartbeat {
        request_id: RequestId,
        claim: Option<Revision>,
    },
    /// Dead. Its claim, if it still had one.
    Confirmed {
        claim: Option<Revision>,
    },
    /// Its id was freed for a standby, which has until then to show itself.
    Freed {
        until: Time,
    },
}

/// The result of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SuspectOutcome {
    /// Not known yet.
    Open,
    /// It is dead.
    Dead,
    /// The key holds a heartbeat; the roster decides whether it is newer than the last one heard.
    Heartbeat(WorkerId, Entry),
}

#[derive(Debug)]
pub(super) struct Suspects {
    checks: BTreeMap<WorkerId, (Incarnation, SuspectCheck)>,
    claim_first: bool,
}

impl Suspects {
    pub(super) fn new(config: &Config) -> Self {
        Self { checks: BTreeMap::new(), claim_first: config.enforces(ProtocolRule::ReadBeforeFree) }
    }

    /// Begins a check unless one is in progress for this incarnation of the id.
    pub(super) fn suspect(
        &mut self,
        id: WorkerId,
        incarnation: Incarnation,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        if self.checks.get(&id).is_some_and(|(known, _)| *known == incarnation) {
            return;
        }
        if !self.claim_first {
            let request_id = request_ids.next(Purpose::SuspectHeartbeat);
            out.push(Effect::Read { request_id, key: Key::Heartbeat(id) });
            self.checks.insert(id, (incarnation, SuspectCheck::HeartbeatFirst(request_id)));
            return;
        }
        let request_id = request_ids.next(Purpose::SuspectClaim);
        out.push(Effect::Read { request_id, key: Key::Claim(id) });
        self.checks.insert(id, (incarnation, SuspectCheck::ReadingClaim(request_id)));
    }

    /// Ends the checks of workers that are heard again.
    pub(super) fn retain(&mut self, still_silent: impl Fn(WorkerId) -> bool) {
        self.checks.retain(|&id, _| still_silent(id));
    }

    /// An answer about a suspect.
    pub(super) fn fetched(
        &mut self,
        request_id: RequestId,
        result: &Result<Option<Entry>, ReadError>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) -> SuspectOutcome {
        let Some((&id, (incarnation, stage))) =
            self.checks.iter_mut().find(|(_, (_, stage))| awaits(*stage, request_id))
        else {
            return SuspectOutcome::Open;
        };
        let Ok(entry) = result else {
            // An error does not prove a crash: read again.
            let incarnation = *incarnation;
            self.checks.remove(&id);
            self.suspect(id, incarnation, request_ids, out);
            return SuspectOutcome::Open;
        };
        match *stage {
            SuspectCheck::ReadingClaim(_) => {
                let request_id = request_ids.next(Purpose::SuspectHeartbeat);
                out.push(Effect::Read { request_id, key: Key::Heartbeat(id) });
                // A claim that is newer than the suspect is its successor's: there is nothing to free, only to wait for.
                let claim = entry.as_ref().filter(|entry| !is_newer_incarnation(entry, *incarnation));
                *stage =
                    SuspectCheck::ReadingHeartbeat { request_id, claim: claim.map(|entry| entry.revision) };
                SuspectOutcome::Open
            }
            SuspectCheck::ReadingHeartbeat { claim, .. } => {
                *stage = SuspectCheck::Confirmed { claim };
                entry.clone().map_or(SuspectOutcome::Dead, |entry| SuspectOutcome::Heartbeat(id, entry))
            }
            SuspectCheck::HeartbeatFirst(_) => {
                let request_id = request_ids.next(Purpose::SuspectClaim);
                out.push(Effect::Read { request_id, key: Key::Claim(id) });
                *stage = SuspectCheck::ClaimLast(request_id);
                entry.clone().map_or(SuspectOutcome::Open, |entry| SuspectOutcome::Heartbeat(id, entry))
            }
            SuspectCheck::ClaimLast(_) => {
                *stage = SuspectCheck::Confirmed { claim: entry.as_ref().map(|entry| entry.revision) };
                SuspectOutcome::Dead
            }
            SuspectCheck::Confirmed { .. } | SuspectCheck::Freed { .. } => SuspectOutcome::Open,
        }
    }

    /// Frees the ids of the confirmed dead for standbys, each exactly at the revision that was read.
    pub(super) fn free_for_standby(
        &mut self,
        until: Time,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        for (&id, (_, stage)) in &mut self.checks {
            if let SuspectCheck::Confirmed { claim } = *stage {
                if let Some(revision) = claim {
                    let request_id = request_ids.next(Purpose::FreeId);
                    out.push(Effect::Delete { request_id, key: Key::Claim(id), revision });
                }
                *stage = SuspectCheck::Freed { until };
            }
        }
    }

    /// Whether the worker is confirmed dead and the wait for a standby is over.
    pub(super) fn is_confirmed_dead(&self, id: WorkerId, now: Time) -> bool {
        match self.checks.get(&id) {
            Some((_, SuspectCheck::Confirmed { .. })) => true,
            Some((_, SuspectCheck::Freed { until })) => now >= *until,
            _ => false,
        }
    }

    /// Whether a worker is confirmed dead and its id is not freed yet.
    pub(super) fn has_confirmed(&self) -> bool {
        self.checks.values().any(|(_, stage)| matches!(stage, SuspectCheck::Confirmed { .. }))
    }

    /// When the next wait for a standby ends.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let waits = self.checks.values().filter_map(|(_, stage)| match stage {
            SuspectCheck::Freed { until } => Some(*until),
            _ => None,
        });
        waits.min()
    }
}

/// Whether a claim was made, not renewed, after that incarnation of its id began.
fn is_newer_incarnation(entry: &Entry, incarnation: Incarnation) -> bool {
    matches!(&entry.value, Value::Claim(claim) if claim.renewals == 0 && entry.stored_at > incarnation.0)
}

fn awaits(stage: SuspectCheck, request_id: RequestId) -> bool {
    match stage {
        SuspectCheck::ReadingClaim(asked)
        | SuspectCheck::HeartbeatFirst(asked)
        | SuspectCheck::ClaimLast(asked) => asked == request_id,
        SuspectCheck::ReadingHeartbeat { request_id: asked, .. } => asked == request_id,
        SuspectCheck::Confirmed { .. } | SuspectCheck::Freed { .. } => false,
    }
}
