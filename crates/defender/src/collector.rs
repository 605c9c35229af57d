//! The way in: the traces of a finished run are stored, and only then its chamber is told.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use phalanx_cluster::SubjectScheme;
use phalanx_cluster::backend::{self, AppendCondition, Kv, Log};
use thiserror::Error;

use crate::names;
use crate::notification::{BadContext, Notification, Rebaseline};
use crate::record::{Chamber, Metadata};
use crate::store::{ChartStore, StoreError};
use crate::traces::EncodedTraces;
use crate::weights::{announce_import, weight};

/// Why a run was not taken in. Whatever was stored of it before does no harm: it can be sent again.
#[derive(Debug, Error)]
pub enum CollectError {
    /// The context id cannot be used.
    #[error(transparent)]
    BadContext(#[from] BadContext),
    /// The store refused it or does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The notification could not be published.
    #[error("the traces are stored, but the notification could not be published: {0}; send the run again")]
    Log(#[from] backend::Error),
}

/// A run that was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// Where its notification stands in the log.
    pub sequence: u64,
    /// The same run was sent within the last minutes: nothing was added.
    pub duplicate: bool,
}

/// Takes finished runs in. Clones are the same collector.
#[derive(Clone)]
pub struct Collector {
    store: Arc<dyn ChartStore>,
    log: Arc<dyn Log>,
    subjects: SubjectScheme,
    /// Where a chamber that nobody has listed is announced at once. Without it the leader finds it within a minute.
    announce: Option<Arc<dyn Kv>>,
    /// Chambers that are listed, so that not every run asks for the list.
    listed: Arc<Mutex<HashSet<Chamber>>>,
}

impl Collector {
    /// Stores in that store and tells chambers in that log.
    pub fn new(store: Arc<dyn ChartStore>, log: Arc<dyn Log>) -> Self {
        Self { store, log, subjects: names::subjects(), announce: None, listed: Arc::default() }
    }

    /// Adds a chamber that nobody has listed to those that are known, and says so in the bucket of the assignments.
    #[must_use]
    pub fn announcing(mut self, assignments: Arc<dyn Kv>) -> Self {
        self.announce = Some(assignments);
        self
    }

    /// Ingests a run: stores its traces and then notifies its chamber.
    pub fn submit<'a>(
        &'a self,
        chamber: &'a Chamber,
        context: &'a str,
        timestamp: Timestamp,
        traces: &'a EncodedTraces,
    ) -> BoxFuture<'a, Result<Collected, CollectError>> {
        Box::pin(async move {
            let notification = Notification::new(chamber.clone(), context, timestamp)?;
            if let Some(assignments) = &self.announce {
                self.announce(&**assignments, chamber, traces).await?;
            }
            self.store.put_t_chart(chamber, context, traces).await?;
            self.publish(chamber, &notification.t_chart_key(), notification.to_json()).await
        })
    }

    /// Tells a chamber to begin charts anew, in order with its runs.
    pub fn rebaseline<'a>(
        &'a self,
        command: &'a Rebaseline,
    ) -> BoxFuture<'a, Result<Collected, CollectError>> {
        Box::pin(async move {
            let id = format!("{}:{}", command.chamber, command.context);
            self.publish(&command.chamber, &id, command.to_json()).await
        })
    }

    async fn publish(
        &self,
        chamber: &Chamber,
        id: &str,
        payload: Vec<u8>,
    ) -> Result<Collected, CollectError> {
        let subject = self.subjects.subject(&chamber.to_string());
        // Ids are compared over the whole log, and contexts repeat across chambers: the id names both.
        let appended = self.log.append(&subject, payload.into(), AppendCondition::NewId(id)).await?;
        Ok(Collected { sequence: appended.sequence, duplicate: appended.duplicate })
    }

    async fn announce(
        &self,
        assignments: &dyn Kv,
        chamber: &Chamber,
        traces: &EncodedTraces,
    ) -> Result<(), CollectError> {
        if self.listed().contains(chamber) {
            return Ok(());
        }
        let known = self.store.metadata().await?;
        self.listed().extend(known.into_iter().map(|metadata| metadata.chamber));
        if self.listed().contains(chamber) {
            return Ok(());
        }
        let svid_count = u32::try_from(traces.svids()).unwrap_or(u32::MAX).max(1);
        let samples = traces.points() as f64 / f64::from(svid_count);
        let metadata = Metadata {
            chamber: chamber.clone(),
            svid_count,
            // As if sampled once a second: the product is what counts, and the next estimate knows better.
            collection_freq_hz: 1.0,
            context_duration_seconds: samples,
            weight: weight(svid_count, 1.0, samples),
            last_updated: Timestamp::now(),
        };
        self.store.put_metadata(&[metadata]).await?;
        announce_import(assignments, &chamber.to_string()).await?;
        self.listed().insert(chamber.clone());
        Ok(())
    }

    fn listed(&self) -> MutexGuard<'_, HashSet<Chamber>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
