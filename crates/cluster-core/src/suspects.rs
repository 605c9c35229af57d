//! Before a silent worker is declared dead: its claim is read, then its heartbeat, both from the stream leader, and only
//! then is exactly that claim freed or its work given away.

use std::collections::BTreeMap;

use super::Guard;
use super::config::Config;
use super::io::{Effect, Purpose, ReadError, Ticket, Tickets};
use super::types::{Entry, Incarnation, Key, Revision, Time, Value, WorkerId};

/// How far the inquiry about one worker has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    ReadingClaim(Ticket),
    /// The wrong order: only in a test that takes the rule out.
    HeartbeatFirst(Ticket),
    ClaimLast(Ticket),
    ReadingHeartbeat {
        ticket: Ticket,
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

/// What an answer came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Finding {
    /// Not known yet.
    Open,
    /// It is dead.
    Dead,
    /// Its key holds something; whoever keeps the roster judges whether that is newer than what was heard.
    Heartbeat(WorkerId, Entry),
}

#[derive(Debug)]
pub(super) struct Suspects {
    inquiries: BTreeMap<WorkerId, (Incarnation, Stage)>,
    claim_first: bool,
}

impl Suspects {
    pub(super) fn new(config: &Config) -> Self {
        Self { inquiries: BTreeMap::new(), claim_first: config.keeps(Guard::ReadBeforeFree) }
    }

    /// Begins an inquiry unless there is one about this life of the id.
    pub(super) fn suspect(
        &mut self,
        id: WorkerId,
        life: Incarnation,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) {
        if self.inquiries.get(&id).is_some_and(|(known, _)| *known == life) {
            return;
        }
        if !self.claim_first {
            let ticket = tickets.next(Purpose::SuspectHeartbeat);
            out.push(Effect::Read { ticket, key: Key::Heartbeat(id) });
            self.inquiries.insert(id, (life, Stage::HeartbeatFirst(ticket)));
            return;
        }
        let ticket = tickets.next(Purpose::SuspectClaim);
        out.push(Effect::Read { ticket, key: Key::Claim(id) });
        self.inquiries.insert(id, (life, Stage::ReadingClaim(ticket)));
    }

    /// Forgets whoever is no longer silent.
    pub(super) fn retain(&mut self, still_silent: impl Fn(WorkerId) -> bool) {
        self.inquiries.retain(|&id, _| still_silent(id));
    }

    /// An answer about a suspect.
    pub(super) fn fetched(
        &mut self,
        ticket: Ticket,
        result: &Result<Option<Entry>, ReadError>,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) -> Finding {
        let Some((&id, (life, stage))) =
            self.inquiries.iter_mut().find(|(_, (_, stage))| asks(*stage, ticket))
        else {
            return Finding::Open;
        };
        let Ok(entry) = result else {
            // An error is no evidence of death: ask again.
            let life = *life;
            self.inquiries.remove(&id);
            self.suspect(id, life, tickets, out);
            return Finding::Open;
        };
        match *stage {
            Stage::ReadingClaim(_) => {
                let ticket = tickets.next(Purpose::SuspectHeartbeat);
                out.push(Effect::Read { ticket, key: Key::Heartbeat(id) });
                // A claim that is newer than the suspect is its successor's: there is nothing to free, only to wait for.
                let claim = entry.as_ref().filter(|entry| !begins_a_life_after(entry, *life));
                *stage = Stage::ReadingHeartbeat { ticket, claim: claim.map(|entry| entry.revision) };
                Finding::Open
            }
            Stage::ReadingHeartbeat { claim, .. } => {
                *stage = Stage::Confirmed { claim };
                entry.clone().map_or(Finding::Dead, |entry| Finding::Heartbeat(id, entry))
            }
            Stage::HeartbeatFirst(_) => {
                let ticket = tickets.next(Purpose::SuspectClaim);
                out.push(Effect::Read { ticket, key: Key::Claim(id) });
                *stage = Stage::ClaimLast(ticket);
                entry.clone().map_or(Finding::Open, |entry| Finding::Heartbeat(id, entry))
            }
            Stage::ClaimLast(_) => {
                *stage = Stage::Confirmed { claim: entry.as_ref().map(|entry| entry.revision) };
                Finding::Dead
            }
            Stage::Confirmed { .. } | Stage::Freed { .. } => Finding::Open,
        }
    }

    /// Frees the ids of the confirmed dead for standbys, each exactly at the revision that was read.
    pub(super) fn free_for_standby(&mut self, until: Time, tickets: &mut Tickets, out: &mut Vec<Effect>) {
        for (&id, (_, stage)) in &mut self.inquiries {
            if let Stage::Confirmed { claim } = *stage {
                if let Some(revision) = claim {
                    let ticket = tickets.next(Purpose::FreeId);
                    out.push(Effect::Delete { ticket, key: Key::Claim(id), revision });
                }
                *stage = Stage::Freed { until };
            }
        }
    }

    /// Who is dead and waited for no longer.
    pub(super) fn is_condemned(&self, id: WorkerId, now: Time) -> bool {
        match self.inquiries.get(&id) {
            Some((_, Stage::Confirmed { .. })) => true,
            Some((_, Stage::Freed { until })) => now >= *until,
            _ => false,
        }
    }

    /// Whether somebody is confirmed dead and its id was not freed.
    pub(super) fn has_confirmed(&self) -> bool {
        self.inquiries.values().any(|(_, stage)| matches!(stage, Stage::Confirmed { .. }))
    }

    /// When the next wait for a standby ends.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let waits = self.inquiries.values().filter_map(|(_, stage)| match stage {
            Stage::Freed { until } => Some(*until),
            _ => None,
        });
        waits.min()
    }
}

/// Whether a claim was made, not renewed, after that life of its id began.
fn begins_a_life_after(entry: &Entry, life: Incarnation) -> bool {
    matches!(&entry.value, Value::Claim(claim) if claim.renewals == 0 && entry.stored_at > life.0)
}

fn asks(stage: Stage, ticket: Ticket) -> bool {
    match stage {
        Stage::ReadingClaim(asked) | Stage::HeartbeatFirst(asked) | Stage::ClaimLast(asked) => {
            asked == ticket
        }
        Stage::ReadingHeartbeat { ticket: asked, .. } => asked == ticket,
        Stage::Confirmed { .. } | Stage::Freed { .. } => false,
    }
}
