//! A bucket in JetStream, with the layout that NATS's own key-value clients use.

use std::collections::BTreeSet;

use async_nats::HeaderMap;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessage;
use async_trait::async_trait;
use bytes::Bytes;
use phalanx_cluster::backend::{Entry, Error, Kv, Watch, WatchEvent, validate};
use phalanx_cluster::core::Condition;
use phalanx_cluster::core::types::Revision;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::connection::{Connection, RequestError, Stored};
use crate::streams::bucket_stream;
use crate::watch;

const OPERATION: &str = "KV-Operation";
const NO_MESSAGE: u64 = 10037;
/// "wrong last sequence: N", and the same without N.
const WRONG_LAST_SEQUENCE: [u64; 2] = [10071, 10164];

pub(crate) struct Bucket {
    connection: Connection,
    stream: String,
    prefix: String,
}

impl Bucket {
    pub(crate) fn new(connection: Connection, name: &str) -> Self {
        Self { connection, stream: bucket_stream(name), prefix: format!("$KV.{name}.") }
    }

    fn subject(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The newest message of a key, a deletion too, from the stream's leader.
    async fn newest(&self, key: &str) -> Result<Option<StreamMessage>, RequestError> {
        last_message(&self.connection, &self.stream, json!({ "last_by_subj": self.subject(key) })).await
    }

    /// Stores a message if the newest of the key is at that sequence; 0 means that there is none.
    async fn store(
        &self,
        key: &str,
        payload: Bytes,
        last: Option<u64>,
        delete: bool,
    ) -> Result<Stored, RequestError> {
        let mut headers = HeaderMap::new();
        if let Some(last) = last {
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, last.to_string());
        }
        if delete {
            headers.insert(OPERATION, "DEL");
        }
        self.connection.publish(&self.stream, self.subject(key), headers, payload).await
    }

    async fn create(&self, what: String, key: &str, value: Bytes) -> Result<Revision, Error> {
        let refused = match self.store(key, value.clone(), Some(0), false).await {
            Ok(stored) => return Ok(Revision(stored.seq)),
            Err(trouble) => trouble,
        };
        if conflicting_revision(&refused).is_none() {
            return Err(refused.into_write_error(what, &self.stream));
        }
        // Something is there: a value, or the mark of a deletion, which counts as nothing.
        let newest = match self.newest(key).await {
            Ok(newest) => newest,
            Err(trouble) => return Err(trouble.into_read_error(what, &self.stream)),
        };
        match newest {
            Some(message) if !is_deletion(&message.headers) => {
                Err(Error::conflict(what, Some(Revision(message.sequence))))
            }
            newest => {
                let last = newest.map_or(0, |message| message.sequence);
                self.finish(what, self.store(key, value, Some(last), false).await)
            }
        }
    }

    fn finish(&self, what: String, result: Result<Stored, RequestError>) -> Result<Revision, Error> {
        match result {
            Ok(stored) => Ok(Revision(stored.seq)),
            Err(trouble) => match conflicting_revision(&trouble) {
                Some(found) => Err(Error::conflict(what, found)),
                None => Err(trouble.into_write_error(what, &self.stream)),
            },
        }
    }
}

#[async_trait]
impl Kv for Bucket {
    async fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        validate::key(key)?;
        match self.newest(key).await {
            Ok(newest) => Ok(newest.filter(|message| !is_deletion(&message.headers)).map(|message| Entry {
                key: key.to_owned(),
                value: message.payload,
                revision: Revision(message.sequence),
                stored_at: micros(message.time.unix_timestamp_nanos()),
            })),
            Err(trouble) => Err(trouble.into_read_error(format!("get of {key}"), &self.stream)),
        }
    }

    async fn write(&self, key: &str, value: Bytes, condition: Condition) -> Result<Revision, Error> {
        let what = format!("write of {key} in {}", self.stream);
        validate::key(key)?;
        validate::value(&what, &value)?;
        let last = match condition {
            Condition::Absent => return self.create(what, key, value).await,
            Condition::None => None,
            // No value has revision 0, and to the server it means that there is none.
            Condition::Revision(Revision(0)) => return Err(Error::conflict(what, None)),
            Condition::Revision(revision) => Some(revision.0),
        };
        self.finish(what, self.store(key, value, last, false).await)
    }

    async fn delete(&self, key: &str, revision: Revision) -> Result<(), Error> {
        validate::key(key)?;
        let what = format!("delete of {key} in {}", self.stream);
        if revision == Revision(0) {
            return Err(Error::conflict(what, None));
        }
        self.finish(what, self.store(key, Bytes::new(), Some(revision.0), true).await).map(drop)
    }

    async fn keys(&self) -> Result<BTreeSet<String>, Error> {
        let feed = watch::WatchSource::new(self.connection.clone(), &self.stream, &self.prefix);
        let mut watch = feed.start(Revision(0), true).await?;
        let mut keys = BTreeSet::new();
        loop {
            match watch.next().await {
                Some(WatchEvent::Put(entry)) => drop(keys.insert(entry.key)),
                Some(WatchEvent::Delete { key, .. }) => drop(keys.remove(&key)),
                Some(WatchEvent::Resumed { replaced: true }) => keys.clear(),
                Some(WatchEvent::Resumed { replaced: false }) => {}
                Some(WatchEvent::Current) | None => return Ok(keys),
            }
        }
    }

    async fn watch_after(&self, revision: Revision) -> Result<Watch, Error> {
        let source = watch::WatchSource::new(self.connection.clone(), &self.stream, &self.prefix);
        source.start(revision, false).await
    }
}

/// One message from the stream's leader, if there is such a one.
pub(crate) async fn last_message(
    connection: &Connection,
    stream: &str,
    which: Value,
) -> Result<Option<StreamMessage>, RequestError> {
    #[derive(Deserialize)]
    struct Answer {
        message: RawMessage,
    }

    match connection.api::<Answer>(&format!("STREAM.MSG.GET.{stream}"), &which).await {
        Ok(answer) => {
            let unreadable = |e| RequestError::NoResponse(format!("a message that makes no sense: {e}"));
            StreamMessage::try_from(answer.message).map(Some).map_err(unreadable)
        }
        Err(trouble) if trouble.code() == Some(NO_MESSAGE) => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

/// Whether the newest message of the key was another one than expected; and which, if the server says.
pub(crate) fn conflicting_revision(trouble: &RequestError) -> Option<Option<Revision>> {
    match trouble {
        RequestError::Refused(error) if WRONG_LAST_SEQUENCE.contains(&error.err_code) => {
            let number = error.description.rsplit(' ').next().and_then(|number| number.parse().ok());
            Some(number.map(Revision))
        }
        _ => None,
    }
}

/// Whether a message marks that there is no value any more.
pub(crate) fn is_deletion(headers: &HeaderMap) -> bool {
    headers.get(OPERATION).is_some_and(|operation| matches!(operation.as_str(), "DEL" | "PURGE"))
        || headers.get("Nats-Marker-Reason").is_some()
}

/// Microseconds since 1970.
pub(crate) fn micros(nanos: i128) -> u64 {
    u64::try_from(nanos / 1000).unwrap_or(0)
}
