//! The election: a lease that workers acquire and renew by compare-and-swap.
//!
//! A worker that has not heard the holder for as long as a crash takes may take the lease over: the holder has fenced
//! itself by then. A newer incarnation of the holder's id frees it too. Where an election agent ends leases by itself
//! ([`LeaseExpiry::AfterTerm`]), no worker takes one over before that, and the holder stops a term after it sent the last
//! renewal that was acknowledged, which is sooner. Epochs only grow.

use super::config::{Config, LeaseExpiry};
use super::health::{HealthyClock, HealthyInstant};
use super::io::{Condition, Effect, Purpose, ReadError, RequestId, RequestIds, WriteError, Written};
use super::roster::Roster;
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

/// Who campaigns, and what it knows.
#[derive(Clone, Copy)]
pub(super) struct ElectionContext<'a> {
    pub(super) me: WorkerIncarnation,
    pub(super) config: &'a Config,
    pub(super) roster: &'a Roster,
    pub(super) clock: &'a HealthyClock,
}

#[derive(Debug)]
pub(super) struct Election {
    /// The lease as the watch or a read last showed it.
    seen: Option<(Lease, Revision, HealthyInstant)>,
    /// When this process began to watch, on the healthy clock.
    watching_since: Option<HealthyInstant>,
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
        Self {
            seen: None,
            watching_since: None,
            highest_epoch: Epoch(0),
            held: None,
            renew_at: Time::ZERO,
            pending: None,
        }
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

    /// An epoch was seen somewhere: ours must be above it.
    pub(super) fn note_epoch(&mut self, epoch: Epoch) {
        self.highest_epoch = self.highest_epoch.max(epoch);
    }

    pub(super) fn begin_watching(&mut self, clock: &HealthyClock) {
        self.watching_since.get_or_insert(clock.now());
    }

    /// The watch shows the lease, or that it is gone.
    pub(super) fn watched(&mut self, entry: Option<&Entry>, clock: &HealthyClock) -> ElectionOutcome {
        let Some((entry, lease)) = entry.and_then(|entry| lease_of(entry).map(|lease| (entry, lease))) else {
            self.seen = None;
            return ElectionOutcome::Nothing;
        };
        self.note_epoch(lease.epoch);
        self.seen = Some((lease.clone(), entry.revision, clock.now()));
        match &self.held {
            Some(ours) if entry.revision > ours.revision && lease.holder != ours.lease.holder => self.lose(),
            _ => ElectionOutcome::Nothing,
        }
    }

    /// Tries to take a lease that is free, or to keep ours when it is time.
    pub(super) fn campaign(
        &mut self,
        now: Time,
        candidate: &ElectionContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        if self.pending.is_some() || !candidate.config.controller_enabled {
            return;
        }
        if let Some(HeldLease { lease, revision, .. }) = &self.held {
            if now >= self.renew_at {
                let renewed = Lease { renewals: lease.renewals + 1, ..lease.clone() };
                let condition = Condition::Revision(*revision);
                self.write(now, renewed, condition, request_ids, out);
            }
            return;
        }
        let condition = match &self.seen {
            None => Condition::Absent,
            Some((lease, revision, changed)) => {
                if !self.is_available(lease, *changed, candidate) {
                    return;
                }
                Condition::Revision(*revision)
            }
        };
        let lease = Lease { holder: candidate.me, epoch: self.highest_epoch.next(), renewals: 0 };
        self.write(now, lease, condition, request_ids, out);
    }

    fn is_available(&self, lease: &Lease, changed: HealthyInstant, candidate: &ElectionContext<'_>) -> bool {
        let ElectionContext { me, config, roster, clock } = *candidate;
        let holder = lease.holder;
        if let LeaseExpiry::AfterTerm(_) = config.lease_expiry {
            // A lease of our own that we no longer trusted; the election agent ends every other.
            return holder == me;
        }
        if holder.id == me.id {
            // An earlier incarnation of our own id, or a lease of ours that we no longer trusted.
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
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        let request_id = request_ids.next(Purpose::Lease);
        out.push(Effect::Write {
            request_id,
            key: Key::Lease,
            value: Value::Lease(lease.clone()),
            condition,
        });
        self.pending = Some(PendingLeaseRequest { request_id, wanted: lease, sent: now });
    }

    /// A write of the lease was answered.
    pub(super) fn written(
        &mut self,
        now: Time,
        request_id: RequestId,
        result: Result<Written, WriteError>,
        config: &Config,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) -> ElectionOutcome {
        let Some(pending) = self.pending.take_if(|pending| pending.request_id == request_id) else {
            return ElectionOutcome::Nothing;
        };
        match result {
            Ok(written) => {
                let PendingLeaseRequest { wanted, sent, .. } = pending;
                self.hold(now, wanted, written.revision, Some(sent), config)
            }
            Err(WriteError::Failed) => ElectionOutcome::Nothing,
            Err(WriteError::Conflict | WriteError::Unknown) => {
                // Refused or unanswered: only the key itself knows who leads.
                let request_id = request_ids.next(Purpose::ReadLease);
                out.push(Effect::Read { request_id, key: Key::Lease });
                self.pending = Some(PendingLeaseRequest { request_id, ..pending });
                ElectionOutcome::Nothing
            }
        }
    }

    /// The lease was read.
    pub(super) fn fetched(
        &mut self,
        now: Time,
        request_id: RequestId,
        result: Result<Option<Entry>, ReadError>,
        config: &Config,
        clock: &HealthyClock,
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
                self.seen = Some((lease.clone(), entry.revision, clock.now()));
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
            Err(ReadError) => ElectionOutcome::Nothing,
        }
    }

    /// Gives the lease back: removes exactly the revision we wrote.
    pub(super) fn resign(
        &mut self,
        config: &Config,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) -> Option<RequestId> {
        let revision = config.delete_revision(self.held.take()?.revision);
        let request_id = request_ids.next(Purpose::Resign);
        out.push(Effect::Delete { request_id, key: Key::Lease, revision });
        Some(request_id)
    }

    /// Stops leading without a word: the fence has closed or the id is lost.
    pub(super) fn abandon(&mut self) -> ElectionOutcome {
        self.pending = None;
        self.lose()
    }

    /// Notes that the lease is ours. `granted` is when the granted request was sent.
    fn hold(
        &mut self,
        now: Time,
        lease: Lease,
        revision: Revision,
        granted: Option<Time>,
        config: &Config,
    ) -> ElectionOutcome {
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

fn lease_of(entry: &Entry) -> Option<&Lease> {
    match &entry.value {
        Value::Lease(lease) => Some(lease),
        _ => None,
    }
}
