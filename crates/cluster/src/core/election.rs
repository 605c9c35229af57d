//! Who leads, by a lease that is taken and kept by compare-and-swap.
//!
//! Whoever has not heard the holder for as long as a crash takes may take the lease: the holder has fenced itself by
//! then. A newer life of the holder's id frees it too. Epochs only grow.

use super::config::Config;
use super::health::{HealthyClock, Mark};
use super::io::{Condition, Effect, Purpose, ReadError, Ticket, Tickets, WriteError, Written};
use super::roster::Roster;
use super::types::{Entry, Epoch, Holder, Key, Lease, Revision, Time, Value};

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing that matters to others.
    Nothing,
    /// We lead now.
    Won(Epoch),
    /// We lead no more.
    Lost,
}

/// Who campaigns, and what it knows.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) me: Holder,
    pub(super) config: &'a Config,
    pub(super) roster: &'a Roster,
    pub(super) clock: &'a HealthyClock,
}

#[derive(Debug)]
pub(super) struct Election {
    /// The lease as the watch or a read last showed it.
    seen: Option<(Lease, Revision, Mark)>,
    /// When this process began to watch, on the healthy clock.
    watching_since: Option<Mark>,
    /// The highest epoch seen anywhere.
    highest: Epoch,
    /// Our own lease, while we lead.
    ours: Option<(Lease, Revision)>,
    renew_at: Time,
    pending: Option<(Ticket, Lease)>,
}

impl Election {
    pub(super) fn new() -> Self {
        Self {
            seen: None,
            watching_since: None,
            highest: Epoch(0),
            ours: None,
            renew_at: Time::ZERO,
            pending: None,
        }
    }

    pub(super) fn leader(&self) -> Option<Holder> {
        self.seen.as_ref().map(|(lease, ..)| lease.holder)
    }

    pub(super) fn renew_at(&self) -> Option<Time> {
        self.ours.is_some().then_some(self.renew_at)
    }

    /// Whether a request about the lease is on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// An epoch was seen somewhere: ours must be above it.
    pub(super) fn note_epoch(&mut self, epoch: Epoch) {
        self.highest = self.highest.max(epoch);
    }

    pub(super) fn begin_watching(&mut self, clock: &HealthyClock) {
        self.watching_since.get_or_insert(clock.mark());
    }

    /// The watch shows the lease, or that it is gone.
    pub(super) fn watched(&mut self, entry: Option<&Entry>, clock: &HealthyClock) -> Outcome {
        let Some((entry, lease)) = entry.and_then(|entry| lease_of(entry).map(|lease| (entry, lease))) else {
            self.seen = None;
            return Outcome::Nothing;
        };
        self.note_epoch(lease.epoch);
        self.seen = Some((lease.clone(), entry.revision, clock.mark()));
        match &self.ours {
            Some((ours, revision)) if entry.revision > *revision && lease.holder != ours.holder => {
                self.lose()
            }
            _ => Outcome::Nothing,
        }
    }

    /// Tries to take a lease that is free, or to keep ours when it is time.
    pub(super) fn campaign(
        &mut self,
        now: Time,
        candidate: &Candidate<'_>,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) {
        if self.pending.is_some() || !candidate.config.controller_enabled {
            return;
        }
        if let Some((lease, revision)) = &self.ours {
            if now >= self.renew_at {
                let renewed = Lease { renewals: lease.renewals + 1, ..lease.clone() };
                let condition = Condition::Revision(*revision);
                self.write(renewed, condition, tickets, out);
            }
            return;
        }
        let condition = match &self.seen {
            None => Condition::Absent,
            Some((lease, revision, changed)) => {
                if !self.is_free(lease, *changed, candidate) {
                    return;
                }
                Condition::Revision(*revision)
            }
        };
        let lease = Lease { holder: candidate.me, epoch: Epoch(self.highest.0 + 1), renewals: 0 };
        self.write(lease, condition, tickets, out);
    }

    fn is_free(&self, lease: &Lease, changed: Mark, candidate: &Candidate<'_>) -> bool {
        let Candidate { me, config, roster, clock } = *candidate;
        let holder = lease.holder;
        if holder.id == me.id {
            // An earlier life of our own id, or a lease of ours that we no longer trusted.
            return holder.incarnation <= me.incarnation;
        }
        if roster.get(holder.id).is_some_and(|seen| {
            seen.incarnation > holder.incarnation || (seen.incarnation == holder.incarnation && seen.left)
        }) {
            return true;
        }
        let crash = config.crash_after();
        match roster.silence(holder.id, clock) {
            Some(silent) => silent >= crash || clock.since(changed) >= config.lease_term + crash,
            // Never heard: somebody who has watched for longer may know better, so give them two seconds.
            None => self
                .watching_since
                .is_some_and(|since| clock.since(since) >= crash + config.heartbeat_interval),
        }
    }

    fn write(&mut self, lease: Lease, condition: Condition, tickets: &mut Tickets, out: &mut Vec<Effect>) {
        let ticket = tickets.next(Purpose::Lease);
        out.push(Effect::Write { ticket, key: Key::Lease, value: Value::Lease(lease.clone()), condition });
        self.pending = Some((ticket, lease));
    }

    /// A write of the lease was answered.
    pub(super) fn written(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: Result<Written, WriteError>,
        config: &Config,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) -> Outcome {
        let Some((_, lease)) = self.pending.take_if(|(expected, _)| *expected == ticket) else {
            return Outcome::Nothing;
        };
        match result {
            Ok(written) => self.hold(now, lease, written.revision, config),
            Err(WriteError::Failed) => Outcome::Nothing,
            Err(WriteError::Conflict | WriteError::Unknown) => {
                // Refused or unanswered: only the key itself knows who leads.
                let ticket = tickets.next(Purpose::ReadLease);
                out.push(Effect::Read { ticket, key: Key::Lease });
                self.pending = Some((ticket, lease));
                Outcome::Nothing
            }
        }
    }

    /// The lease was read.
    pub(super) fn fetched(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: Result<Option<Entry>, ReadError>,
        config: &Config,
        clock: &HealthyClock,
    ) -> Outcome {
        let Some((_, wanted)) = self.pending.take_if(|(expected, _)| *expected == ticket) else {
            return Outcome::Nothing;
        };
        match result {
            Ok(Some(entry)) => {
                let Some(lease) = lease_of(&entry).cloned() else { return Outcome::Nothing };
                self.note_epoch(lease.epoch);
                self.seen = Some((lease.clone(), entry.revision, clock.mark()));
                if lease.holder == wanted.holder && lease.epoch == wanted.epoch {
                    self.hold(now, lease, entry.revision, config)
                } else {
                    self.lose()
                }
            }
            Ok(None) => {
                self.seen = None;
                self.lose()
            }
            Err(ReadError) => Outcome::Nothing,
        }
    }

    /// Gives the lease back: removes exactly the revision we wrote.
    pub(super) fn resign(
        &mut self,
        config: &Config,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) -> Option<Ticket> {
        let (_, revision) = self.ours.take()?;
        let revision = config.compared(revision);
        let ticket = tickets.next(Purpose::Resign);
        out.push(Effect::Delete { ticket, key: Key::Lease, revision });
        Some(ticket)
    }

    /// Stops leading without a word: the fence has closed or the id is lost.
    pub(super) fn forsake(&mut self) -> Outcome {
        self.pending = None;
        self.lose()
    }

    fn hold(&mut self, now: Time, lease: Lease, revision: Revision, config: &Config) -> Outcome {
        let is_new = self.ours.as_ref().is_none_or(|(ours, _)| ours.epoch != lease.epoch);
        self.renew_at = now + config.lease_renewal;
        let epoch = lease.epoch;
        self.highest = self.highest.max(epoch);
        self.ours = Some((lease, revision));
        if is_new { Outcome::Won(epoch) } else { Outcome::Nothing }
    }

    fn lose(&mut self) -> Outcome {
        if self.ours.take().is_some() { Outcome::Lost } else { Outcome::Nothing }
    }
}

fn lease_of(entry: &Entry) -> Option<&Lease> {
    match &entry.value {
        Value::Lease(lease) => Some(lease),
        _ => None,
    }
}
