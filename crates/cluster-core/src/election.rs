//! Who leads, by a lease that is taken and kept by compare-and-swap.
//!
//! Whoever has not heard the holder for as long as a crash takes may take the lease: the holder has fenced itself by
//! then. A newer life of the holder's id frees it too. Where the grantor ends leases by itself ([`Tenure::Term`]), nobody
//! takes one before it has, and the holder stops a term after it sent the last renewal that was acknowledged, which is
//! sooner. Epochs only grow.

use super::config::{Config, Tenure};
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
    ours: Option<Ours>,
    renew_at: Time,
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Ours {
    lease: Lease,
    revision: Revision,
    /// When we lead no more unless it is renewed; none where that is the fence's to say.
    until: Option<Time>,
}

/// A request about the lease that is on its way.
#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    wanted: Lease,
    /// When the write was sent: what it grants is counted from here.
    sent: Time,
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

    /// When our own lease needs something done: to be renewed, or to be over.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let ours = self.ours.as_ref()?;
        let renewal = self.pending.is_none().then_some(self.renew_at);
        renewal.into_iter().chain(ours.until).min()
    }

    /// Stops leading when the term is over and no renewal was acknowledged.
    pub(super) fn tick(&mut self, now: Time) -> Outcome {
        match &self.ours {
            Some(Ours { until: Some(until), .. }) if now >= *until => self.lose(),
            _ => Outcome::Nothing,
        }
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
            Some(ours) if entry.revision > ours.revision && lease.holder != ours.lease.holder => self.lose(),
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
        if let Some(Ours { lease, revision, .. }) = &self.ours {
            if now >= self.renew_at {
                let renewed = Lease { renewals: lease.renewals + 1, ..lease.clone() };
                let condition = Condition::Revision(*revision);
                self.write(now, renewed, condition, tickets, out);
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
        self.write(now, lease, condition, tickets, out);
    }

    fn is_free(&self, lease: &Lease, changed: Mark, candidate: &Candidate<'_>) -> bool {
        let Candidate { me, config, roster, clock } = *candidate;
        let holder = lease.holder;
        if let Tenure::Term(_) = config.tenure {
            // A lease of our own that we no longer trusted; every other is ended by its grantor.
            return holder == me;
        }
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

    fn write(
        &mut self,
        now: Time,
        lease: Lease,
        condition: Condition,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) {
        let ticket = tickets.next(Purpose::Lease);
        out.push(Effect::Write { ticket, key: Key::Lease, value: Value::Lease(lease.clone()), condition });
        self.pending = Some(Pending { ticket, wanted: lease, sent: now });
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
        let Some(pending) = self.pending.take_if(|pending| pending.ticket == ticket) else {
            return Outcome::Nothing;
        };
        match result {
            Ok(written) => {
                let Pending { wanted, sent, .. } = pending;
                self.hold(now, wanted, written.revision, Some(sent), config)
            }
            Err(WriteError::Failed) => Outcome::Nothing,
            Err(WriteError::Conflict | WriteError::Unknown) => {
                // Refused or unanswered: only the key itself knows who leads.
                let ticket = tickets.next(Purpose::ReadLease);
                out.push(Effect::Read { ticket, key: Key::Lease });
                self.pending = Some(Pending { ticket, ..pending });
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
        let Some(Pending { wanted, sent, .. }) = self.pending.take_if(|pending| pending.ticket == ticket)
        else {
            return Outcome::Nothing;
        };
        match result {
            Ok(Some(entry)) => {
                let Some(lease) = lease_of(&entry).cloned() else { return Outcome::Nothing };
                self.note_epoch(lease.epoch);
                self.seen = Some((lease.clone(), entry.revision, clock.mark()));
                if lease.holder == wanted.holder && lease.epoch == wanted.epoch {
                    // Reading is not renewing: only if what we sent is there, it counts from then.
                    let granted = (lease.renewals == wanted.renewals).then_some(sent);
                    self.hold(now, lease, entry.revision, granted, config)
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
        let revision = config.compared(self.ours.take()?.revision);
        let ticket = tickets.next(Purpose::Resign);
        out.push(Effect::Delete { ticket, key: Key::Lease, revision });
        Some(ticket)
    }

    /// Stops leading without a word: the fence has closed or the id is lost.
    pub(super) fn forsake(&mut self) -> Outcome {
        self.pending = None;
        self.lose()
    }

    /// The lease is ours. `granted` is when that was asked for which the grantor has granted now.
    fn hold(
        &mut self,
        now: Time,
        lease: Lease,
        revision: Revision,
        granted: Option<Time>,
        config: &Config,
    ) -> Outcome {
        let before = self.ours.take().filter(|ours| ours.lease.epoch == lease.epoch);
        let until = match (config.tenure, granted) {
            (Tenure::Silence, _) => None,
            (Tenure::Term(term), Some(granted)) => Some(granted + term),
            // Nothing was granted, and what was granted before is not known any more: it may be over.
            (Tenure::Term(_), None) => Some(before.as_ref().and_then(|ours| ours.until).unwrap_or(now)),
        };
        self.renew_at = now + config.lease_renewal;
        let epoch = lease.epoch;
        self.highest = self.highest.max(epoch);
        self.ours = Some(Ours { lease, revision, until });
        match (before, until) {
            (Some(_), _) => Outcome::Nothing,
            (None, Some(until)) if now >= until => {
                self.ours = None;
                Outcome::Nothing
            }
            (None, _) => Outcome::Won(epoch),
        }
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
