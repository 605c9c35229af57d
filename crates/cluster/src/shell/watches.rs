//! The four watches of a worker: what is written there reaches the core.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::backend_client::BackendClient;
use super::problem::Problem;
use crate::backend::{self, Error, LeaseEvent, WatchEvent};
use crate::codec::{Decoded, PartManifest};
use crate::core::Event;
use crate::core::types::{Entry, Key};
use crate::names::Bucket;

/// The buckets that are watched.
pub(super) const WATCHED: [Bucket; 4] =
    [Bucket::StableIds, Bucket::Heartbeats, Bucket::Assignments, Bucket::Election];
/// How long to wait before a watch is begun again, or a part of a map is asked for again.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// What reaches the event loop.
pub(super) enum Signal {
    /// Something for the core.
    Event(Event),
    /// A watch has told everything that was there when it began.
    Current(Bucket),
    /// A watch goes on after a disconnect.
    Resumed,
    /// A bucket was made anew.
    Replaced(Bucket),
}

pub(super) struct WatchTask {
    pub(super) broker: Arc<BackendClient>,
    pub(super) bucket: Bucket,
    pub(super) signals: mpsc::Sender<Signal>,
    /// The newest revision of the map that was told: a later one ends the search for the parts of an earlier one.
    pub(super) newest_map: Arc<AtomicU64>,
}

impl WatchTask {
    /// Goes on until nobody listens.
    pub(super) async fn run(self) {
        while !self.signals.is_closed() {
            let ended = match self.bucket {
                Bucket::Election => self.follow_election().await,
                bucket => self.follow(bucket).await,
            };
            if let Err(error) = ended {
                self.broker.hooks.report(Problem::Backend(error));
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    async fn follow_election(&self) -> Result<(), Error> {
        let election = &self.broker.election;
        let watch = election.watch().await;
        if watch.is_err() && election.has_external_agent() {
            // Ids and partitions are the broker's matter: whoever grants leases may be away meanwhile.
            self.signal(Signal::Current(Bucket::Election)).await;
        }
        let (mut watch, mut retained) = (watch?, true);
        while let Some(event) = watch.next().await {
            match event {
                Ok(LeaseEvent::Current) => {
                    retained = false;
                    self.signal(Signal::Current(Bucket::Election)).await;
                }
                Ok(LeaseEvent::Resumed { replaced }) => {
                    retained = true;
                    self.signal(resumed(Bucket::Election, replaced)).await;
                }
                Ok(LeaseEvent::Vacant) => self.lease(None, retained).await,
                Ok(LeaseEvent::Held(lease)) => match election.note(&lease) {
                    Ok(entry) => self.lease(Some(entry), retained).await,
                    Err(error) => self.broker.hooks.report(Problem::Backend(error)),
                },
                Err(error) => self.broker.hooks.report(Problem::Backend(error)),
            }
        }
        Ok(())
    }

    async fn lease(&self, entry: Option<Entry>, retained: bool) {
        self.signal(Signal::Event(Event::Watched { key: Key::Lease, entry, retained })).await;
    }

    async fn follow(&self, bucket: Bucket) -> Result<(), Error> {
        let mut watch = self.broker.bucket(bucket).watch().await?;
        let mut retained = true;
        // Searches for the parts of a map. They end with this watch.
        let mut searches = JoinSet::new();
        while let Some(event) = watch.next().await {
            while searches.try_join_next().is_some() {}
            match event {
                WatchEvent::Put(entry) => self.on_entry(&entry, retained, &mut searches).await,
                WatchEvent::Delete { key, .. } => {
                    if let Some(key) = self.broker.config.names.parse_key(bucket, &key) {
                        self.signal(Signal::Event(Event::Watched { key, entry: None, retained })).await;
                    }
                }
                WatchEvent::Current => {
                    retained = false;
                    self.signal(Signal::Current(bucket)).await;
                }
                WatchEvent::Resumed { replaced } => {
                    retained = true;
                    self.signal(resumed(bucket, replaced)).await;
                }
            }
        }
        Ok(())
    }

    async fn on_entry(&self, entry: &backend::Entry, retained: bool, searches: &mut JoinSet<()>) {
        let Some(key) = self.broker.config.names.parse_key(self.bucket, &entry.key) else { return };
        if key == Key::Map {
            self.newest_map.fetch_max(entry.revision.0, Ordering::Relaxed);
        }
        match self.broker.codec.decode(&key, &entry.value) {
            Ok(Decoded::Value(value)) => {
                let entry = Some(self.broker.entry(value, entry));
                self.signal(Signal::Event(Event::Watched { key, entry, retained })).await;
            }
            Ok(Decoded::Parts(wanted)) => {
                if !self.assemble_map(entry, &wanted, retained).await {
                    searches.spawn(self.retry_parts(entry.clone(), wanted));
                }
            }
            Err(bad) => self.broker.hooks.report(bad.into()),
        }
    }

    /// Puts a map in parts together. Says whether it is done with.
    async fn assemble_map(&self, stored: &backend::Entry, wanted: &PartManifest, retained: bool) -> bool {
        let revision = stored.revision.0;
        if self.newest_map.load(Ordering::Relaxed) > revision {
            return true;
        }
        match self.broker.read_parts(wanted).await {
            Ok(value) => {
                let entry = Some(self.broker.entry(value, stored));
                self.signal(Signal::Event(Event::Watched { key: Key::Map, entry, retained })).await;
                true
            }
            Err(reason) => {
                self.broker.hooks.report(Problem::MapIncomplete { revision, reason });
                false
            }
        }
    }

    /// Looks for the parts of a map until they are there, or a later map is, or nobody listens.
    fn retry_parts(&self, stored: backend::Entry, wanted: PartManifest) -> impl Future<Output = ()> + use<> {
        let later = Self {
            broker: self.broker.clone(),
            bucket: self.bucket,
            signals: self.signals.clone(),
            newest_map: self.newest_map.clone(),
        };
        async move {
            loop {
                tokio::time::sleep(RETRY_DELAY).await;
                if later.signals.is_closed() || later.assemble_map(&stored, &wanted, false).await {
                    return;
                }
            }
        }
    }

    async fn signal(&self, signal: Signal) {
        // The receiver is gone when the worker has ended.
        let _ = self.signals.send(signal).await;
    }
}

fn resumed(bucket: Bucket, replaced: bool) -> Signal {
    if replaced { Signal::Replaced(bucket) } else { Signal::Resumed }
}
