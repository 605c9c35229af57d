//! A durable log with many subjects.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::Error;

/// How a log is set up. A log that is full refuses what is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// The subjects it takes; `*` stands for one token, `>` at the end for one or more.
    pub subjects: Vec<String>,
    /// How long a message lives; none: for ever.
    pub max_age: Option<Duration>,
    /// How long a message id is remembered.
    pub duplicate_window: Duration,
    /// How many messages it takes; none: any number.
    pub max_messages: Option<u64>,
    /// How many bytes it takes; none: any number.
    pub max_bytes: Option<u64>,
    /// The description of a log that is created. The description of an existing log stays.
    pub description: Option<String>,
}

impl LogConfig {
    /// A log without limits that remembers message ids for two minutes.
    pub fn new(name: impl Into<String>, subjects: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            name: name.into(),
            subjects: subjects.into_iter().map(Into::into).collect(),
            max_age: None,
            duplicate_window: Duration::from_secs(120),
            max_messages: None,
            max_bytes: None,
            description: None,
        }
    }
}

/// Under which condition a message is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendCondition<'a> {
    /// Under none.
    None,
    /// No message with this id within the duplicate window, on any subject of the log.
    NewId(&'a str),
    /// No message of its subject is in the log.
    EmptySubject,
}

/// A message that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its sequence; of a duplicate, the first one's.
    pub sequence: u64,
    /// Whether a message with the same id was there already, so that nothing was appended.
    pub duplicate: bool,
}

/// A message as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its subject.
    pub subject: String,
    /// Its place in the log, over all subjects, from 1.
    pub sequence: u64,
    /// What it says.
    pub payload: Bytes,
    /// The broker's time when it was stored, in microseconds since 1970.
    pub stored_at: u64,
}

/// What a log is and how far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogInfo {
    /// When it was made, in the broker's microseconds: which log this is, if it was removed and made anew.
    pub created: u64,
    /// The first sequence that is still there; the next one to come in an empty log.
    pub first: u64,
    /// The last sequence that was given; 0 for none yet.
    pub last: u64,
    /// How many messages there are.
    pub messages: u64,
}

/// One log.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), phalanx_cluster::backend::Error> {
/// use phalanx_cluster::backend::{AppendCondition, Backend, Embedded, LogConfig};
///
/// let log = Embedded::in_memory()?.log(&LogConfig::new("runs", ["run.*"])).await?;
/// let first = log.append("run.a", "one".into(), AppendCondition::NewId("a:1")).await?;
/// let again = log.append("run.a", "one".into(), AppendCondition::NewId("a:1")).await?;
/// assert_eq!((again.sequence, again.duplicate), (first.sequence, true));
/// assert_eq!(log.read("run.a", first.sequence, 2).await?.len(), 1);
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Log: Send + Sync {
    /// Appends a message.
    async fn append(
        &self,
        subject: &str,
        payload: Bytes,
        expect: AppendCondition<'_>,
    ) -> Result<Appended, Error>;

    /// Up to `limit` messages of a subject from that sequence on, it included. The answer may come from a replica that is
    /// behind: then it ends too early, but has no gap.
    async fn read(&self, subject: &str, from: u64, limit: usize) -> Result<Vec<Message>, Error>;

    /// The first message of a subject from that sequence on, from the one place that knows.
    async fn next(&self, subject: &str, from: u64) -> Result<Option<Message>, Error>;

    /// The last message of a subject, from the one place that knows.
    async fn last(&self, subject: &str) -> Result<Option<Message>, Error>;

    /// Removes the message at that sequence; false if there is none. Not for logs that somebody reads in order: a message
    /// that is removed is one that was lost.
    async fn remove(&self, sequence: u64) -> Result<bool, Error>;

    /// What the log is and how far it goes, from the one place that knows.
    async fn info(&self) -> Result<LogInfo, Error>;

    /// Every subject that has messages, and how many.
    async fn subjects(&self) -> Result<BTreeMap<String, u64>, Error>;

    /// A bell that rings when something is appended to the subject. It may ring early or twice, and a ring may get lost.
    async fn subscribe_wake_ups(&self, subject: &str) -> Result<WakeUpSubscription, Error>;
}

/// Says that there may be something to read; dropping it ends it.
pub struct WakeUpSubscription {
    rings: mpsc::Receiver<()>,
    /// What keeps the bell ringing.
    _keep: Box<dyn Send + Sync>,
}

impl WakeUpSubscription {
    /// A bell that rings when the sender is used; `keep` is dropped with it. Rings that nobody has heard yet are one ring.
    pub fn new(keep: impl Send + Sync + 'static) -> (mpsc::Sender<()>, Self) {
        let (sender, rings) = mpsc::channel(1);
        (sender, Self { rings, _keep: Box::new(keep) })
    }

    /// Waits for a ring; false when the backend has been closed. May be dropped and asked again at any time.
    pub async fn recv(&mut self) -> bool {
        self.rings.recv().await.is_some()
    }
}

impl fmt::Debug for WakeUpSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WakeUpSubscription")
    }
}
