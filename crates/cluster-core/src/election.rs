//! The election: a lease that workers acquire and renew by compare-and-swap.
//!
//! A worker that has not heard the holder for as long as a crash takes may take the lease over: the holder has fenced
//! itself by then. A newer incarnation of the holder's id frees it too. Where an election agent ends leases by itself
//! ([`LeaseExpiry::AfterTerm`]), no worker takes one over before that, and the holder stops a term after it sent the last
//! renewal that was acknowledged, which is sooner. Epochs only grow.

use super::config::{Config, LeaseExpiry};
use super::facts::Facts;
use super::health::HealthyInstant;
use super::io::{Condition, Purpose, ReadError, RequestId, WriteError, Written};
use super::outbox::Outbox;
use super::types::{Entry, Epoch, Key, Lease, Revision, Time, Value, WorkerIncarnation};

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElectionOutcome {
    /// Nothing that matters to others.
    Nothing,
    /// We lead now.
    Won(Epoch),
    /// We lead no more.
    Lost,
}

/// The election as one worker takes part in it.
#[derive(Debug)]
pub(super) struct Election {
    /// The lease as the watch or a read last showed it.
    seen: Option<(Lease, Revision, HealthyInstant)>,
    /// The highest epoch seen anywhere.
    highest_epoch: Epoch,
    /// Our own lease, while we lead.
    held: Option<HeldLease>,
    renew_at: Time,
    pending: Option<PendingLeaseRequest>,
}

#[derive(Debug)]
struct HeldLease {
    lease: Lease,
    revision: Revision,
    /// When we lead no more unless it is renewed; none where that is the fence's to say.
    until: Option<Time>,
}

/// A request about the lease that is on its way.
#[derive(Debug)]
struct PendingLeaseRequest {
    request_id: RequestId,
    wanted: Lease,
    /// When the write was sent: what it grants is counted from here.
    sent: Time,
}

impl Election {
    pub(super) fn new() -> Self {
        Self { seen: None, highest_epoch: Epoch(0), held: None, renew_at: Time::ZERO, pending: None }
    }

    pub(super) fn leader(&self) -> Option<WorkerIncarnation> {
        self.seen.as_ref().map(|(lease, ..)| lease.holder)
    }

    /// When our own lease needs something done: to be renewed, or to be over.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let ours = self.held.as_ref()?;
        let renewal = self.pending.is_none().then_some(self.renew_at);
        renewal.into_iter().chain(ours.until).min()
    }

    /// Stops leading when the term is over and no renewal was acknowledged.
    pub(super) fn tick(&mut self, now: Time) -> ElectionOutcome {
        match &self.held {
            Some(HeldLease { until: Some(until), .. }) if now >= *until => self.lose(),
            _ => ElectionOutcome::Nothing,
        }
    }

    /// Whether a request about the lease is on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns the highest epoch that was seen.
    pub(super) fn highest_epoch(&self) -> Epoch {
        self.highest_epoch
    }

    /// Notes an epoch: a new one must be above it.
    pub(super) fn note_epoch(&mut self, epoch: Epoch) {
        self.highest_epoch = self.highest_epoch.max(epoch);
    }

    /// The watch shows the lease, or that it is gone.
    pub(super) fn watched(&mut self, entry: Option<&Entry>, facts: &Facts) -> ElectionOutcome {
        let Some((entry, lease)) = entry.and_then(|entry| lease_of(entry).map(|lease| (entry, lease))) else {
            self.seen = None;
            return ElectionOutcome::Nothing;
        };
        self.note_epoch(lease.epoch);
        self.seen = Some((lease.clone(), entry.revision, facts.clock.now()));
        match &self.held {
            Some(ours) if entry.revision > ours.revision && lease.holder != ours.lease.holder => self.lose(),
            _ => ElectionOutcome::Nothing,
        }
    }

    /// Acquires a lease that is free, or renews the held one when it is time.
    pub(super) fn campaign(&mut self, facts: &Facts, outbox: &mut Outbox) {
        if self.pending.is_some() || !facts.config.controller_enabled {
            return;
        }
        if let Some(HeldLease { lease, revision, .. }) = &self.held {
            invariant!(lease.holder == facts.me(), "a worker renews only its own lease");
            if facts.now >= self.renew_at {
                let renewed = Lease { renewals: lease.renewals + 1, ..lease.clone() };
                self.write(renewed, Condition::Revision(*revision), facts, outbox);
            }
            return;
        }
        let condition = match &self.seen {
            None => Condition::Absent,
            Some((lease, revision, changed)) => {
                if !is_available(lease, *changed, facts) {
                    return;
                }
                Condition::Revision(*revision)
            }
        };
        let lease = Lease { holder: facts.me(), epoch: self.highest_epoch.next(), renewals: 0 };
        self.write(lease, condition, facts, outbox);
    }

    fn write(&mut self, wanted: Lease, condition: Condition, facts: &Facts, outbox: &mut Outbox) {
        invariant!(self.pending.is_none(), "one request about the lease at a time");
        let value = Value::Lease(wanted.clone());
        let request_id = outbox.write(Purpose::Lease, Key::Lease, value, condition);
        self.pending = Some(PendingLeaseRequest { request_id, wanted, sent: facts.now });
    }

    /// Handles the answer to a write of the lease.
    pub(super) fn written(
        &mut self,
        request_id: RequestId,
        result: Result<Written, WriteError>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) -> ElectionOutcome {
        let Some(pending) = self.pending.take_if(|pending| pending.request_id == request_id) else {
            return ElectionOutcome::Nothing;
        };
        match result {
            Ok(written) => {
                let PendingLeaseRequest { wanted, sent, .. } = pending;
                self.hold(wanted, written.revision, Some(sent), facts)
            }
            Err(WriteError::Failed) => ElectionOutcome::Nothing,
            Err(WriteError::Conflict | WriteError::Unknown) => {
                // Refused or not answered: only the key itself shows who leads.
                let request_id = outbox.read(Purpose::ReadLease, Key::Lease);
                self.pending = Some(PendingLeaseRequest { request_id, ..pending });
                ElectionOutcome::Nothing
            }
        }
    }

    /// Handles the lease that was read after a write without a clear answer.
    pub(super) fn fetched(
        &mut self,
        request_id: RequestId,
        result: Result<Option<Entry>, ReadError>,
        facts: &Facts,
    ) -> ElectionOutcome {
        let Some(PendingLeaseRequest { wanted, sent, .. }) =
            self.pending.take_if(|pending| pending.request_id == request_id)
        else {
            return ElectionOutcome::Nothing;
        };
        match result {
            Ok(Some(entry)) => {
                let Some(lease) = lease_of(&entry).cloned() else { return ElectionOutcome::Nothing };
                self.note_epoch(lease.epoch);
                self.seen = Some((lease.clone(), entry.revision, facts.clock.now()));
                if lease.holder == wanted.holder && lease.epoch == wanted.epoch {
                    // Reading is not renewing: only if what we sent is there, it counts from then.
                    let granted = (lease.renewals == wanted.renewals).then_some(sent);
                    self.hold(lease, entry.revision, granted, facts)
                } else {
                    self.lose()
                }
            }
            Ok(None) => {
                self.seen = None;
                self.lose()
            }
            Err(ReadError) => ElectionOutcome::Nothing,
        }
    }

    /// Resigns: deletes exactly the revision that this worker wrote.
    pub(super) fn resign(&mut self, config: &Config, outbox: &mut Outbox) -> Option<RequestId> {
        invariant!(self.pending.is_none(), "the answer to a request about the lease comes first");
        let revision = config.policy.released_revision(self.held.take()?.revision);
        Some(outbox.delete(Purpose::Resign, Key::Lease, revision))
    }

    /// Stops leading without a write: the fence has closed or the id is lost.
    pub(super) fn abandon(&mut self) -> ElectionOutcome {
        self.pending = None;
        self.lose()
    }

    /// Records that the lease is held. `granted` is the sending of the granted request.
    fn hold(
        &mut self,
        lease: Lease,
        revision: Revision,
        granted: Option<Time>,
        facts: &Facts,
    ) -> ElectionOutcome {
        let (now, config) = (facts.now, &facts.config);
        invariant!(lease.epoch <= self.highest_epoch.next(), "an epoch grows by one");
        let before = self.held.take().filter(|ours| ours.lease.epoch == lease.epoch);
        let until = match (config.lease_expiry, granted) {
            (LeaseExpiry::OnSilence, _) => None,
            (LeaseExpiry::AfterTerm(term), Some(granted)) => Some(granted + term),
            // Nothing was granted, and what was granted before is not known any more: it may be over.
            (LeaseExpiry::AfterTerm(_), None) => {
                Some(before.as_ref().and_then(|ours| ours.until).unwrap_or(now))
            }
        };
        self.renew_at = now + config.lease_renewal;
        let epoch = lease.epoch;
        self.highest_epoch = self.highest_epoch.max(epoch);
        self.held = Some(HeldLease { lease, revision, until });
        match (before, until) {
            (Some(_), _) => ElectionOutcome::Nothing,
            (None, Some(until)) if now >= until => {
                self.held = None;
                ElectionOutcome::Nothing
            }
            (None, _) => ElectionOutcome::Won(epoch),
        }
    }

    fn lose(&mut self) -> ElectionOutcome {
        if self.held.take().is_some() { ElectionOutcome::Lost } else { ElectionOutcome::Nothing }
    }
}

/// Whether a lease that another request may take over is free by what this worker knows.
fn is_available(lease: &Lease, changed: HealthyInstant, facts: &Facts) -> bool {
    let Facts { config, roster, clock, .. } = facts;
    let (me, holder) = (facts.me(), lease.holder);
    if let LeaseExpiry::AfterTerm(_) = config.lease_expiry {
        // A lease of this worker that it no longer trusted; the election agent ends every other.
        return holder == me;
    }
    if holder.id == me.id {
        // An earlier incarnation of this id, or a lease of this worker that it no longer trusted.
        return holder.incarnation <= me.incarnation;
    }
    if roster.get(holder.id).is_some_and(|seen| {
        seen.incarnation > holder.incarnation || (seen.incarnation == holder.incarnation && seen.left)
    }) {
        return true;
    }
    let crash = config.crash_after();
    match roster.time_since_heartbeat(holder.id, clock) {
        Some(silent) => silent >= crash || clock.since(changed) >= config.lease_term + crash,
        // Never heard: a worker that has watched for longer may know better, so give it two seconds.
        None => facts.watching_since.is_some() && facts.watched() >= crash + config.heartbeat_interval,
    }
}

fn lease_of(entry: &Entry) -> Option<&Lease> {
    match &entry.value {
        Value::Lease(lease) => Some(lease),
        _ => None,
    }
}

#[cfg(test)]
#[path = "election_test.rs"]
mod tests;
