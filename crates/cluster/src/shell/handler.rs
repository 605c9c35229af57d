//! What a user does with a message.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use thiserror::Error;
use xxhash_rust::xxh64::xxh64;

use super::gate::Gate;
use super::wait_time::WaitTime;
use crate::core::types::{FencingToken, LogId, Time, WriteTimestamp};
use crate::core::{Position, ProcessOutcome, ProcessRequest, RecoveryPoint};

/// A message to process, and where its results belong.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The partition.
    pub partition: Arc<str>,
    /// What the message says.
    pub payload: Bytes,
    /// Its id, by [`Handler::decode`].
    pub message_id: Arc<str>,
    /// Where it stands. Never used twice, also when the log is made anew.
    pub position: Position,
    /// The last committed message; none if nothing was ever committed.
    pub committed: Option<Position>,
    /// The log it comes from.
    pub log_id: Option<LogId>,
    /// The broker's time when it was stored, in microseconds.
    pub stored_at: u64,
    /// The fencing token of this attempt. It grows with every owner and attempt: a lower one must never overwrite a higher one.
    pub fencing_token: FencingToken,
    /// The write timestamp of its results, which only grows.
    pub write_timestamp: WriteTimestamp,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Whatever you remember of this partition does not count: read it again from where you keep it.
    pub ignore_cache: bool,
    decoded: Option<Arc<dyn Any + Send + Sync>>,
    gate: Gate,
    wait_time: WaitTime,
}

impl Delivery {
    pub(super) fn new(
        partition: Arc<str>,
        work: &ProcessRequest,
        decoded: Option<Arc<dyn Any + Send + Sync>>,
        gate: Gate,
    ) -> Self {
        Self {
            decoded,
            partition,
            payload: Bytes::copy_from_slice(&work.message.payload),
            message_id: work.message.message_id.clone(),
            position: work.position,
            committed: work.committed,
            log_id: work.log_id,
            stored_at: work.message.stored_at,
            fencing_token: work.fencing_token,
            write_timestamp: work.write_timestamp,
            attempt: work.attempt,
            ignore_cache: work.ignore_cache,
            gate,
            wait_time: WaitTime::default(),
        }
    }

    /// A delivery for tests of handlers, as the first attempt of a worker that may write gets it. Change what matters.
    ///
    /// ```
    /// use phalanx_cluster::Delivery;
    /// use phalanx_cluster::core::Position;
    /// use phalanx_cluster::core::types::{FencingToken, Sequence};
    ///
    /// let mut delivery = Delivery::sample("etch-01:A", "payload", Position::new(1, Sequence(7)));
    /// delivery.fencing_token = FencingToken(2);
    /// assert!(delivery.may_write());
    /// ```
    pub fn sample(partition: &str, payload: impl Into<Bytes>, position: Position) -> Self {
        let gate = Gate::closed();
        gate.set(Some(Time::MAX));
        let payload = payload.into();
        Self {
            partition: partition.into(),
            message_id: payload_hash(&payload).into(),
            decoded: None,
            payload,
            position,
            committed: None,
            log_id: Some(LogId(1)),
            stored_at: position.sequence.0,
            fencing_token: FencingToken::FIRST,
            write_timestamp: WriteTimestamp(position.sequence.0),
            attempt: 1,
            ignore_cache: true,
            gate,
            wait_time: WaitTime::default(),
        }
    }

    /// Returns the decoded form of the message, by [`Handler::decode`]. It is none after a restart between reading and
    /// processing, and in tests of handlers: decode the payload then.
    pub fn decoded<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.decoded.as_deref()?.downcast_ref()
    }

    /// Whether this worker may still write. Ask right before each write: a worker that nobody has heard for a while stops
    /// itself before somebody else goes on.
    pub fn may_write(&self) -> bool {
        self.gate.is_open()
    }

    /// Waits for something that is no fault of the message, such as what its results are kept in: this does not count
    /// towards the time it may take. What is waited for must have a limit of its own.
    pub async fn exclude_from_timeout<T>(&self, work: impl Future<Output = T>) -> T {
        self.wait_time.wait(work).await
    }
}

/// A decoded message.
///
/// ```
/// use std::sync::Arc;
/// use phalanx_cluster::Decoded;
///
/// let decoded = Decoded { message_id: Some("order-7".to_owned()), value: Some(Arc::new(7_u64)) };
/// assert_eq!(decoded.value.and_then(|value| value.downcast_ref::<u64>().copied()), Some(7));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// The id of the message, by which the worker recognizes a log that lost its newest messages. Without one, a hash of
    /// the payload is the id.
    pub message_id: Option<String>,
    /// The decoded form, which [`Delivery::decoded`] returns.
    pub value: Option<Arc<dyn Any + Send + Sync>>,
}

/// Why a message was not processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It is tried again, three times in all.
    Retry(String),
    /// It can never succeed: it becomes a dead letter at once.
    Poison(String),
    /// What the results are kept in does not answer: no fault of the message. It is tried again for as long as it takes.
    Unavailable,
}

/// What results are kept in does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("what results are kept in does not answer")]
pub struct Unavailable;

/// Processes messages: one at a time and in order for each partition, many partitions at once.
///
/// A message may come again if its worker died after processing and before committing; it is committed once. A handler is
/// polled only while its worker may work, and dropped otherwise, so it must not block its thread: use
/// `tokio::task::spawn_blocking` for that.
///
/// ```
/// use phalanx_cluster::{Delivery, Failure, Handler};
///
/// struct Print;
///
/// #[async_trait::async_trait]
/// impl Handler for Print {
///     async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
///         let text = std::str::from_utf8(&delivery.payload).map_err(|e| Failure::Poison(e.to_string()))?;
///         println!("{}: {text}", delivery.partition);
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Processes a message and stores its results. It counts as processed when this returns `Ok` and the commit, which
    /// follows, succeeds.
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure>;

    /// Decodes a message. The worker calls this once for a message that it reads and processes, and passes the decoded form
    /// to [`Handler::handle`]. The same payload must always give the same message id.
    fn decode(&self, partition: &str, payload: &[u8]) -> Decoded {
        let _ = (partition, payload);
        Decoded::default()
    }

    /// How far a partition came by what is stored of it. Asked when its cursor is lost: without an answer, the partition
    /// begins with its first message.
    async fn recovery_point(&self, partition: &str) -> Result<Option<RecoveryPoint>, Unavailable> {
        let _ = partition;
        Ok(None)
    }

    /// Notes that a message is dead, at its position. Its dead letter is published afterwards.
    async fn record_dead_letter(&self, delivery: Delivery, reason: &str) -> Result<(), Unavailable> {
        let _ = (delivery, reason);
        Ok(())
    }

    /// The message at this position is committed, or dead: what was remembered of it counts. Called by the event loop: return at
    /// once.
    fn committed(&self, partition: &str, position: Position) {
        let _ = (partition, position);
    }
}

/// Runs the handler behind the gate, within its time; a panic is a failure.
pub(super) async fn process(handler: &dyn Handler, delivery: Delivery, limit: Duration) -> ProcessOutcome {
    let (gate, patience) = (delivery.gate.clone(), delivery.wait_time.clone());
    let work = std::panic::AssertUnwindSafe(gate.poll_while_open(handler.handle(delivery))).catch_unwind();
    match patience.timeout(limit, work).await {
        Some(Ok(Ok(()))) => ProcessOutcome::Done,
        Some(Ok(Err(Failure::Retry(reason)))) => ProcessOutcome::Failed(reason.into()),
        Some(Ok(Err(Failure::Poison(reason)))) => ProcessOutcome::Poison(reason.into()),
        Some(Ok(Err(Failure::Unavailable))) => ProcessOutcome::Unavailable,
        Some(Err(panic)) => {
            ProcessOutcome::Failed(format!("the handler panicked: {}", panic_text(&*panic)).into())
        }
        None => ProcessOutcome::Failed(format!("it took longer than {limit:?}").into()),
    }
}

/// Returns a hash of a payload, the id of a message without one.
pub(super) fn payload_hash(payload: &[u8]) -> String {
    format!("{:016x}", xxh64(payload, 0))
}

/// Asks the handler about what is stored: a panic, or no answer in time, is none.
pub(super) async fn call_with_timeout<T>(
    limit: Duration,
    question: impl Future<Output = Result<T, Unavailable>>,
) -> Result<T, Unavailable> {
    let question = std::panic::AssertUnwindSafe(question).catch_unwind();
    match tokio::time::timeout(limit, question).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => Err(Unavailable),
    }
}

/// Tells the handler that a message is committed; what it makes of it is its own affair.
pub(super) fn notify_committed(handler: &dyn Handler, partition: &str, position: Position) {
    let tell = std::panic::AssertUnwindSafe(|| handler.committed(partition, position));
    let _ = std::panic::catch_unwind(tell);
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".to_owned())
}
