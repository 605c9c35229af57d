//! What the core says about the lease, in the words of an election.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{Election, Error, Lease, LeaseWatch};
use crate::core::types::{self, Entry, Epoch, Revision, Value};
use crate::core::{Condition, LeaseExpiry, Written};
use crate::names::Names;

/// The core speaks only of what it was told last: nobody asks for a lease from before these.
const MAX_RECENT_LEASES: usize = 8;

/// The election, and the leases it has shown: the core names them by their revisions.
pub(super) struct LeaseAdapter {
    election: Arc<dyn Election>,
    names: Names,
    recent: Mutex<VecDeque<Lease>>,
}

impl LeaseAdapter {
    pub(super) fn new(election: Arc<dyn Election>, names: Names) -> Self {
        Self { election, names, recent: Mutex::default() }
    }

    /// Whether leases are granted by somebody who may be away while the broker is there.
    pub(super) fn has_external_agent(&self) -> bool {
        matches!(self.election.lease_expiry(), LeaseExpiry::AfterTerm(_))
    }

    pub(super) async fn watch(&self) -> Result<LeaseWatch, Error> {
        self.election.watch().await
    }

    /// Carries out a write of the lease.
    pub(super) async fn write(&self, wanted: &types::Lease, condition: Condition) -> Result<Written, Error> {
        let lease = match (condition, wanted.renewals) {
            (Condition::Revision(revision), 1..) => self.election.renew(&self.shown(revision)?).await?,
            (condition, _) => {
                let from = match condition {
                    Condition::Revision(revision) => Some(self.shown(revision)?),
                    Condition::Absent | Condition::None => None,
                };
                let holder = self.names.format_incarnation(wanted.holder);
                self.election.take(&holder, from.as_ref(), wanted.epoch.0).await?
            }
        };
        let entry = self.note(&lease)?;
        if lease.epoch == wanted.epoch.0 && lease.renewals == wanted.renewals {
            return Ok(Written { revision: entry.revision, stored_at: 0 });
        }
        // It is ours, and not what was asked for: whoever asked reads it.
        Err(Error::conflict(
            format!("lease of {} with epoch {}", lease.holder, wanted.epoch.0),
            Some(entry.revision),
        ))
    }

    /// Gives exactly that lease back.
    pub(super) async fn resign(&self, revision: Revision) -> Result<(), Error> {
        self.election.resign(&self.shown(revision)?).await
    }

    /// The lease that holds, from the one place that knows.
    pub(super) async fn read(&self) -> Result<Option<Entry>, Error> {
        let lease = self.election.current().await?;
        lease.map(|lease| self.note(&lease)).transpose()
    }

    /// Remembers a lease, and says it in the core's words.
    pub(super) fn note(&self, lease: &Lease) -> Result<Entry, Error> {
        let holder = self
            .names
            .parse_incarnation(&lease.holder)
            .map_err(|reason| Error::invalid(format!("lease with epoch {}", lease.epoch), reason))?;
        let mut shown = self.lock();
        shown.retain(|known| known.revision != lease.revision);
        shown.push_front(lease.clone());
        shown.truncate(MAX_RECENT_LEASES);
        let value = types::Lease { holder, epoch: Epoch(lease.epoch), renewals: lease.renewals };
        Ok(Entry { value: Value::Lease(value), revision: lease.revision, stored_at: 0 })
    }

    fn shown(&self, revision: Revision) -> Result<Lease, Error> {
        let shown = self.lock();
        let found = shown.iter().find(|lease| lease.revision == revision);
        found.cloned().ok_or_else(|| Error::conflict(format!("lease of revision {}", revision.0), None))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Lease>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
