//! The connection of one process to everything outside: broker, result store and oracle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use phalanx_cluster::backend::{Error, WatchEvent};
use phalanx_cluster_core::types::{Revision, Sequence, Time};
use phalanx_cluster_core::{ProcessRequest, RecoveryPoint};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::backend::{Request, Response, Transport, WakeUps, WatchEvents};

/// The sender of a reply.
pub(crate) type Reply<T> = oneshot::Sender<T>;

/// A reply of the result store.
#[derive(Clone, Debug)]
pub(crate) enum StoreReply {
    /// The handler may compute for this time.
    Started(Duration),
    /// The results are stored.
    Stored,
    /// The recovery point of the partition.
    RecoveryPoint(Option<RecoveryPoint>),
    /// There is no handler state at the committed position.
    MissingState,
    /// The store does not answer.
    Unavailable,
}

/// A call that leaves a process.
#[derive(Debug)]
pub(crate) enum Call {
    /// A request to the broker.
    Backend(Request, Reply<Result<Response, Error>>),
    /// The start of a watch.
    Watch(Arc<str>, Revision, mpsc::UnboundedSender<WatchEvent>, Reply<Result<Response, Error>>),
    /// The start of a wake-up subscription.
    Subscribe(Arc<str>, String, mpsc::UnboundedSender<()>, Reply<Result<Response, Error>>),
    /// The handler starts a message and reads its state.
    Start(Arc<str>, Box<ProcessRequest>, Reply<StoreReply>),
    /// The handler writes the results of its message.
    WriteRows(Arc<str>, Reply<StoreReply>),
    /// The handler writes the state of a dead letter.
    RecordDeadLetter(Arc<str>, Box<ProcessRequest>, Reply<StoreReply>),
    /// The handler reads the recovery point of a partition.
    RecoveryPoint(Arc<str>, Reply<StoreReply>),
    /// The handler does not process a partition any more; false if it was dropped.
    End(Arc<str>, bool),
    /// The message crashes the process.
    Crash,
    /// The worker tells the handler that a message is committed.
    Committed(Arc<str>),
    /// The worker reports expired messages.
    Expired(Arc<str>, Sequence, Sequence),
    /// The worker reports that it lost its id.
    IdentityLost,
    /// The worker reports a violated assertion.
    InvariantViolated(String),
    /// The worker has opened its stores and starts.
    WorkerStarted,
}

/// The calls of one process that the world has not received yet.
#[derive(Debug)]
pub(crate) struct Port {
    calls: Mutex<Vec<(Time, Call)>>,
    /// A virtual time, and the same moment of the tokio clock of the process.
    started: Mutex<Option<(Time, Instant)>>,
}

impl Port {
    /// Creates a port without calls.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { calls: Mutex::default(), started: Mutex::default() })
    }

    /// Sets the virtual time of this moment of the process's tokio clock.
    pub(crate) fn start(&self, now: Time, origin: Instant) {
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, origin));
    }

    /// Adds a call at the present time of the process.
    pub(crate) fn post(&self, call: Call) {
        let started = *self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let now = started.map_or(Time::ZERO, |(started, origin)| {
            started + Instant::now().saturating_duration_since(origin)
        });
        self.lock().push((now, call));
    }

    /// Removes and returns the calls so far.
    pub(crate) fn take(&self) -> Vec<(Time, Call)> {
        std::mem::take(&mut *self.lock())
    }

    /// Adds a call and waits for the reply. Waits forever if there never is one.
    pub(crate) async fn call<T>(&self, make: impl FnOnce(Reply<T>) -> Call) -> T {
        let (reply, answer) = oneshot::channel();
        self.post(make(reply));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Time, Call)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Transport for Port {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        Self::call(self, |reply| Call::Backend(request, reply)).await
    }

    async fn watch(&self, bucket: Arc<str>, after: Revision) -> Result<WatchEvents, Error> {
        let (events, arriving) = mpsc::unbounded_channel();
        Self::call(self, |reply| Call::Watch(bucket, after, events, reply)).await?;
        Ok(arriving)
    }

    async fn subscribe(&self, log: Arc<str>, subject: String) -> Result<WakeUps, Error> {
        let (wake_ups, arriving) = mpsc::unbounded_channel();
        Self::call(self, |reply| Call::Subscribe(log, subject, wake_ups, reply)).await?;
        Ok(arriving)
    }
}
