//! The backend traits over a transport.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use phalanx_cluster::backend::{
    AppendCondition, Appended, Backend, BucketConfig, Entry, Error, Kv, Log, LogConfig, LogInfo, Message,
    StoreKind, WakeUpSubscription, Watch, WatchEvent, validate,
};
use phalanx_cluster_core::Condition;
use phalanx_cluster_core::types::Revision;
use tokio::sync::mpsc;

use crate::backend::request::{Request, Response};

/// The events of a watch, as they arrive.
pub(crate) type WatchEvents = mpsc::UnboundedReceiver<WatchEvent>;
/// The wake-ups of a subscription, as they arrive.
pub(crate) type WakeUps = mpsc::UnboundedReceiver<()>;

/// The way between a client and its server.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Sends a request and waits for the response.
    async fn call(&self, request: Request) -> Result<Response, Error>;

    /// Starts a watch of a bucket.
    async fn watch(&self, bucket: Arc<str>, after: Revision) -> Result<WatchEvents, Error>;

    /// Starts a wake-up subscription of a subject.
    async fn subscribe(&self, log: Arc<str>, subject: String) -> Result<WakeUps, Error>;
}

/// A connection to a simulated server.
#[derive(Clone)]
pub struct SimBackend {
    transport: Arc<dyn Transport>,
}

impl SimBackend {
    /// A backend over a transport.
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport }
    }
}

/// Reports a response that does not belong to its request.
fn mismatch<T>(response: &Response) -> Result<T, Error> {
    Err(Error::invalid("response", format!("{response:?} does not belong to the request")))
}

#[async_trait]
impl Backend for SimBackend {
    async fn bucket(&self, config: &BucketConfig) -> Result<Arc<dyn Kv>, Error> {
        validate::bucket(config)?;
        self.transport.call(Request::OpenBucket(config.clone())).await?;
        Ok(Arc::new(SimKv { transport: self.transport.clone(), name: config.name.as_str().into() }))
    }

    async fn log(&self, config: &LogConfig) -> Result<Arc<dyn Log>, Error> {
        validate::log(config)?;
        if config.max_bytes.is_some() {
            return Err(Error::invalid(format!("log {}", config.name), "max_bytes is not simulated"));
        }
        self.transport.call(Request::OpenLog(config.clone())).await?;
        let name = config.name.as_str().into();
        Ok(Arc::new(SimLog { transport: self.transport.clone(), name, config: config.clone() }))
    }

    async fn description(&self, kind: StoreKind, name: &str) -> Result<String, Error> {
        match self.transport.call(Request::Description(kind, name.to_owned())).await? {
            Response::Text(description) => Ok(description),
            other => mismatch(&other),
        }
    }

    async fn describe(&self, kind: StoreKind, name: &str, description: &str) -> Result<(), Error> {
        let request = Request::Describe(kind, name.to_owned(), description.to_owned());
        self.transport.call(request).await.map(drop)
    }
}

struct SimKv {
    transport: Arc<dyn Transport>,
    name: Arc<str>,
}

#[async_trait]
impl Kv for SimKv {
    async fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        validate::key(key)?;
        match self.transport.call(Request::Get(self.name.clone(), key.to_owned())).await? {
            Response::Entry(entry) => Ok(entry),
            other => mismatch(&other),
        }
    }

    async fn write(&self, key: &str, value: Bytes, condition: Condition) -> Result<Revision, Error> {
        validate::key(key)?;
        validate::value(key, &value)?;
        let request = Request::Write(self.name.clone(), key.to_owned(), value, condition);
        match self.transport.call(request).await? {
            Response::Revision(revision) => Ok(revision),
            other => mismatch(&other),
        }
    }

    async fn delete(&self, key: &str, revision: Revision) -> Result<(), Error> {
        validate::key(key)?;
        self.transport.call(Request::Delete(self.name.clone(), key.to_owned(), revision)).await.map(drop)
    }

    async fn keys(&self) -> Result<BTreeSet<String>, Error> {
        match self.transport.call(Request::Keys(self.name.clone())).await? {
            Response::Keys(keys) => Ok(keys),
            other => mismatch(&other),
        }
    }

    async fn watch_after(&self, revision: Revision) -> Result<Watch, Error> {
        let mut arriving = self.transport.watch(self.name.clone(), revision).await?;
        let (events, watch) = Watch::new();
        tokio::spawn(async move {
            while let Some(event) = arriving.recv().await {
                if events.send(event).await.is_err() {
                    return;
                }
            }
        });
        Ok(watch)
    }
}

struct SimLog {
    transport: Arc<dyn Transport>,
    name: Arc<str>,
    config: LogConfig,
}

impl SimLog {
    async fn messages(&self, request: Request) -> Result<Vec<Message>, Error> {
        match self.transport.call(request).await? {
            Response::Messages(messages) => Ok(messages),
            other => mismatch(&other),
        }
    }
}

#[async_trait]
impl Log for SimLog {
    async fn append(
        &self,
        subject: &str,
        payload: Bytes,
        expect: AppendCondition<'_>,
    ) -> Result<Appended, Error> {
        validate::subject_of_log(&self.config, subject)?;
        validate::value(subject, &payload)?;
        if let AppendCondition::NewId(id) = expect {
            validate::message_id(id)?;
        }
        let request = Request::Append(self.name.clone(), subject.to_owned(), payload, expect.into());
        match self.transport.call(request).await? {
            Response::Appended(appended) => Ok(appended),
            other => mismatch(&other),
        }
    }

    async fn read(&self, subject: &str, from: u64, limit: usize) -> Result<Vec<Message>, Error> {
        let (log, subject) = (self.name.clone(), subject.to_owned());
        self.messages(Request::Read { log, subject, from, limit }).await
    }

    async fn next(&self, subject: &str, from: u64) -> Result<Option<Message>, Error> {
        let found = self.messages(Request::Next(self.name.clone(), subject.to_owned(), from)).await?;
        Ok(found.into_iter().next())
    }

    async fn last(&self, subject: &str) -> Result<Option<Message>, Error> {
        let found = self.messages(Request::Last(self.name.clone(), subject.to_owned())).await?;
        Ok(found.into_iter().next())
    }

    async fn remove(&self, sequence: u64) -> Result<bool, Error> {
        match self.transport.call(Request::Remove(self.name.clone(), sequence)).await? {
            Response::Removed(is_removed) => Ok(is_removed),
            other => mismatch(&other),
        }
    }

    async fn info(&self) -> Result<LogInfo, Error> {
        match self.transport.call(Request::Info(self.name.clone())).await? {
            Response::Info(info) => Ok(info),
            other => mismatch(&other),
        }
    }

    async fn subjects(&self) -> Result<BTreeMap<String, u64>, Error> {
        match self.transport.call(Request::Subjects(self.name.clone())).await? {
            Response::Subjects(subjects) => Ok(subjects),
            other => mismatch(&other),
        }
    }

    async fn subscribe_wake_ups(&self, subject: &str) -> Result<WakeUpSubscription, Error> {
        let mut arriving = self.transport.subscribe(self.name.clone(), subject.to_owned()).await?;
        let (wake_ups, subscription) = WakeUpSubscription::new(());
        tokio::spawn(async move {
            while arriving.recv().await.is_some() {
                if wake_ups.is_closed() {
                    return;
                }
                // A full channel means that a wake-up is already pending.
                let _ = wake_ups.try_send(());
            }
        });
        Ok(subscription)
    }
}
