//! A bucket with trouble.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::{Fault, Faults, Op, lost};
use crate::backend::{Entry, Error, Kv, Watch, WatchEvent};
use crate::core::Condition;
use crate::core::types::Revision;

/// What each key was before its last change that went through here.
pub(super) type PreviousValues = HashMap<String, Option<Entry>>;

pub(super) struct FaultyKv {
    inner: Arc<dyn Kv>,
    faults: Faults,
    former: Arc<Mutex<PreviousValues>>,
}

impl FaultyKv {
    pub(super) fn new(inner: Arc<dyn Kv>, faults: Faults, former: Arc<Mutex<PreviousValues>>) -> Self {
        Self { inner, faults, former }
    }

    fn former(&self) -> MutexGuard<'_, PreviousValues> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn remember(&self, key: &str) {
        if let Ok(entry) = self.inner.get(key).await {
            self.former().insert(key.to_owned(), entry);
        }
    }
}

#[async_trait]
impl Kv for FaultyKv {
    async fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        match self.faults.enter(Op::Read, key).await? {
            Some(Fault::Stale) => {
                let former = self.former().get(key).cloned();
                match former {
                    Some(entry) => Ok(entry),
                    None => self.inner.get(key).await,
                }
            }
            Some(Fault::LoseAnswer | Fault::Late) => Err(lost(Op::Read, key)),
            _ => self.inner.get(key).await,
        }
    }

    async fn write(&self, key: &str, value: Bytes, condition: Condition) -> Result<Revision, Error> {
        self.remember(key).await;
        let make = || {
            let (inner, key, value) = (self.inner.clone(), key.to_owned(), value.clone());
            async move { inner.write(&key, value, condition).await }
        };
        self.faults.change(Op::Write, key, make).await
    }

    async fn delete(&self, key: &str, revision: Revision) -> Result<(), Error> {
        self.remember(key).await;
        let make = || {
            let (inner, key) = (self.inner.clone(), key.to_owned());
            async move { inner.delete(&key, revision).await }
        };
        self.faults.change(Op::Delete, key, make).await
    }

    async fn keys(&self) -> Result<BTreeSet<String>, Error> {
        self.faults.enter(Op::Read, "").await?;
        self.inner.keys().await
    }

    async fn watch_after(&self, revision: Revision) -> Result<Watch, Error> {
        self.faults.enter(Op::Read, "").await?;
        let first = self.inner.watch_after(revision).await?;
        let (events, watch) = Watch::new();
        let (inner, faults) = (self.inner.clone(), self.faults.clone());
        tokio::spawn(async move { tell(&*inner, &faults, first, revision, &events).await });
        Ok(watch)
    }
}

/// Hands on what the inner watch tells. After a cut it goes on after the last change that was handed on.
async fn tell(
    inner: &dyn Kv,
    faults: &Faults,
    mut watch: Watch,
    mut told: Revision,
    events: &mpsc::Sender<WatchEvent>,
) -> Option<()> {
    let mut cut = faults.cut.subscribe();
    loop {
        let event = tokio::select! {
            biased;
            () = events.closed() => return None,
            cut = cut.wait_for(|cut| *cut) => { cut.ok()?; None }
            event = watch.next() => Some(event?),
        };
        let Some(event) = event else {
            cut.wait_for(|cut| !*cut).await.ok()?;
            watch = inner.watch_after(told).await.ok()?;
            events.send(WatchEvent::Resumed { replaced: false }).await.ok()?;
            continue;
        };
        let name = match &event {
            WatchEvent::Put(entry) => {
                told = entry.revision;
                entry.key.clone()
            }
            WatchEvent::Delete { key, revision } => {
                told = *revision;
                key.clone()
            }
            WatchEvent::Current | WatchEvent::Resumed { .. } => String::new(),
        };
        match faults.next_fault(Op::Event, &name) {
            Some(Fault::Drop) => continue,
            Some(Fault::Delay) => faults.hold().await,
            Some(Fault::Duplicate) => events.send(event.clone()).await.ok()?,
            _ => {}
        }
        events.send(event).await.ok()?;
    }
}
