//! A log with trouble.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Fault, Faults, Op, lost};
use crate::backend::{AppendCondition, Appended, Error, Log, LogInfo, Message, WakeUpSubscription};

pub(super) struct FaultyLog {
    inner: Arc<dyn Log>,
    faults: Faults,
}

impl FaultyLog {
    pub(super) fn new(inner: Arc<dyn Log>, faults: Faults) -> Self {
        Self { inner, faults }
    }

    async fn enter(&self, subject: &str) -> Result<Option<Fault>, Error> {
        match self.faults.enter(Op::Read, subject).await? {
            Some(Fault::LoseAnswer | Fault::Late) => Err(lost(Op::Read, subject)),
            fault => Ok(fault),
        }
    }
}

#[async_trait]
impl Log for FaultyLog {
    async fn append(
        &self,
        subject: &str,
        payload: Bytes,
        expect: AppendCondition<'_>,
    ) -> Result<Appended, Error> {
        let (id, empty) = match expect {
            AppendCondition::None => (None, false),
            AppendCondition::NewId(id) => (Some(id.to_owned()), false),
            AppendCondition::EmptySubject => (None, true),
        };
        let make = || {
            let (inner, subject, payload, id) =
                (self.inner.clone(), subject.to_owned(), payload.clone(), id.clone());
            async move {
                let expect = match &id {
                    Some(id) => AppendCondition::NewId(id),
                    None if empty => AppendCondition::EmptySubject,
                    None => AppendCondition::None,
                };
                inner.append(&subject, payload, expect).await
            }
        };
        self.faults.change(Op::Write, subject, make).await
    }

    async fn read(&self, subject: &str, from: u64, limit: usize) -> Result<Vec<Message>, Error> {
        let fault = self.enter(subject).await?;
        let mut messages = self.inner.read(subject, from, limit).await?;
        if fault == Some(Fault::Stale) {
            messages.pop();
        }
        Ok(messages)
    }

    async fn next(&self, subject: &str, from: u64) -> Result<Option<Message>, Error> {
        self.enter(subject).await?;
        self.inner.next(subject, from).await
    }

    async fn last(&self, subject: &str) -> Result<Option<Message>, Error> {
        self.enter(subject).await?;
        self.inner.last(subject).await
    }

    async fn remove(&self, sequence: u64) -> Result<bool, Error> {
        let make = || {
            let inner = self.inner.clone();
            async move { inner.remove(sequence).await }
        };
        self.faults.change(Op::Write, "", make).await
    }

    async fn info(&self) -> Result<LogInfo, Error> {
        self.enter("").await?;
        self.inner.info().await
    }

    async fn subjects(&self) -> Result<BTreeMap<String, u64>, Error> {
        self.enter("").await?;
        self.inner.subjects().await
    }

    async fn subscribe_wake_ups(&self, subject: &str) -> Result<WakeUpSubscription, Error> {
        self.enter(subject).await?;
        let mut inner = self.inner.subscribe_wake_ups(subject).await?;
        let (bell, doorbell) = WakeUpSubscription::new(());
        let (faults, subject) = (self.faults.clone(), subject.to_owned());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = bell.closed() => return,
                    rung = inner.recv() => if !rung { return },
                }
                if faults.is_cut() {
                    continue;
                }
                match faults.next_fault(Op::WakeUp, &subject) {
                    Some(Fault::Drop) => continue,
                    Some(Fault::Delay) => faults.hold().await,
                    Some(Fault::Duplicate) => {
                        let _ = bell.send(()).await;
                    }
                    _ => {}
                }
                // Full: it is ringing already.
                let _ = bell.try_send(());
            }
        });
        Ok(doorbell)
    }
}
