//! A log in JetStream: a stream, read without consumers.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::header::{
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID, NATS_SEQUENCE, NATS_SUBJECT,
    NATS_TIME_STAMP,
};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::Info;
use async_nats::{HeaderMap, HeaderValue, StatusCode, datetime};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use phalanx_cluster::backend::{
    AppendCondition, Appended, Error, Log, LogConfig, LogInfo, Message, WakeUpSubscription, validate,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::connection::{ApiError, Connection, RequestError};
use crate::kv::{conflicting_revision, last_message, micros};

/// The server hands out so many messages at once at most.
const BATCH_MAX: usize = 1000;
const END_OF_BATCH: u16 = 204;
const NO_SUCH_MESSAGE: u64 = 10043;
const NOT_REMOVED: u64 = 10057;

pub(crate) struct Stream {
    connection: Connection,
    config: LogConfig,
}

impl Stream {
    pub(crate) fn new(connection: Connection, config: &LogConfig) -> Self {
        Self { connection, config: config.clone() }
    }

    /// One message from the stream's leader.
    async fn one(&self, what: String, which: Value) -> Result<Option<Message>, Error> {
        match last_message(&self.connection, &self.config.name, which).await {
            Ok(found) => Ok(found.map(from_leader)),
            Err(trouble) => Err(trouble.into_read_error(what, &self.config.name)),
        }
    }

    /// Up to `limit` messages from any replica, and whether there are more.
    async fn batch(
        &self,
        subject: &str,
        from: u64,
        limit: usize,
    ) -> Result<(Vec<Message>, bool), RequestError> {
        self.connection.ensure_connected()?;
        let client = &self.connection.client;
        let inbox = client.new_inbox();
        let not_sent = |_| RequestError::NotSent;
        let mut answers = client.subscribe(inbox.clone()).await.map_err(not_sent)?;
        let ask = json!({ "seq": from.max(1), "next_by_subj": subject, "batch": limit.min(BATCH_MAX) });
        let direct = format!("$JS.API.DIRECT.GET.{}", self.config.name);
        client
            .publish_with_reply(direct, inbox, ask.to_string().into())
            .await
            .map_err(|e| RequestError::InvalidRequest(e.to_string()))?;
        let mut messages = Vec::new();
        let timeout = self.connection.timeout;
        loop {
            let answer = next_within(timeout, &mut answers).await?;
            match answer.status.map(|status| status.as_u16()) {
                None => messages.push(from_replica(&answer)?),
                Some(END_OF_BATCH) => {
                    let pending = answer.headers.as_ref().and_then(|headers| headers.get("Nats-Num-Pending"));
                    let more = pending.is_some_and(|pending| pending.as_str() != "0");
                    return Ok((messages, more));
                }
                Some(404) => return Ok((messages, false)),
                Some(503) => return Err(RequestError::NoResponders),
                Some(code) => {
                    let reason = answer.description.as_deref().unwrap_or_default();
                    return Err(RequestError::NoResponse(format!("the server says: {code} {reason}")));
                }
            }
        }
    }
}

#[async_trait]
impl Log for Stream {
    async fn append(
        &self,
        subject: &str,
        payload: Bytes,
        expect: AppendCondition<'_>,
    ) -> Result<Appended, Error> {
        let what = format!("append to {subject}");
        validate::subject_of_log(&self.config, subject)?;
        validate::value(&what, &payload)?;
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_STREAM, &*self.config.name);
        match expect {
            AppendCondition::None => {}
            AppendCondition::NewId(id) => {
                validate::message_id(id)?;
                headers.insert(NATS_MESSAGE_ID, id);
            }
            AppendCondition::EmptySubject => headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, "0"),
        }
        match self.connection.publish(&self.config.name, subject.to_owned(), headers, payload).await {
            Ok(stored) => Ok(Appended { sequence: stored.seq, duplicate: stored.duplicate }),
            Err(trouble) => match conflicting_revision(&trouble) {
                Some(found) => Err(Error::conflict(what, found)),
                None => Err(trouble.into_write_error(what, &self.config.name)),
            },
        }
    }

    async fn read(&self, subject: &str, from: u64, limit: usize) -> Result<Vec<Message>, Error> {
        validate::subject(subject)?;
        let mut messages: Vec<Message> = Vec::new();
        let mut from = from;
        let deadline = Instant::now() + self.connection.timeout;
        while messages.len() < limit {
            let trouble = match self.batch(subject, from, limit - messages.len()).await {
                Ok((batch, more)) => {
                    let Some(last) = batch.last() else { break };
                    from = last.sequence + 1;
                    messages.extend(batch);
                    if more {
                        continue;
                    }
                    break;
                }
                Err(RequestError::NoResponders) => {
                    self.connection.wait_for_responders(&self.config.name, deadline).await.err()
                }
                Err(trouble) => Some(trouble),
            };
            if let Some(trouble) = trouble {
                return Err(trouble.into_read_error(format!("read of {subject}"), &self.config.name));
            }
        }
        Ok(messages)
    }

    async fn next(&self, subject: &str, from: u64) -> Result<Option<Message>, Error> {
        validate::subject(subject)?;
        let which = json!({ "seq": from.max(1), "next_by_subj": subject });
        self.one(format!("next of {subject}"), which).await
    }

    async fn last(&self, subject: &str) -> Result<Option<Message>, Error> {
        validate::subject(subject)?;
        self.one(format!("last of {subject}"), json!({ "last_by_subj": subject })).await
    }

    async fn remove(&self, sequence: u64) -> Result<bool, Error> {
        let name = &self.config.name;
        let ask = json!({ "seq": sequence, "no_erase": true });
        match self.connection.api::<Value>(&format!("STREAM.MSG.DELETE.{name}"), &ask).await {
            Ok(_) => Ok(true),
            Err(RequestError::Refused(error)) if is_absent(&error) => Ok(false),
            Err(trouble) => Err(trouble.into_write_error(format!("removal of {sequence} from {name}"), name)),
        }
    }

    async fn info(&self) -> Result<LogInfo, Error> {
        let name = &self.config.name;
        match self.connection.api::<Info>(&format!("STREAM.INFO.{name}"), &Value::Null).await {
            Ok(Info { created, state, .. }) => Ok(LogInfo {
                created: micros(created.unix_timestamp_nanos()),
                first: if state.messages == 0 { state.last_sequence + 1 } else { state.first_sequence },
                last: state.last_sequence,
                messages: state.messages,
            }),
            Err(trouble) => Err(trouble.into_read_error(format!("info of {name}"), &self.config.name)),
        }
    }

    async fn subjects(&self) -> Result<BTreeMap<String, u64>, Error> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            total: usize,
            state: State,
        }
        #[derive(Deserialize)]
        struct State {
            subjects: Option<BTreeMap<String, u64>>,
        }

        let name = &self.config.name;
        let mut subjects = BTreeMap::new();
        let mut seen = 0;
        loop {
            let ask = json!({ "subjects_filter": ">", "offset": seen });
            let page: Page = match self.connection.api(&format!("STREAM.INFO.{name}"), &ask).await {
                Ok(page) => page,
                Err(trouble) => {
                    return Err(trouble.into_read_error(format!("subjects of {name}"), &self.config.name));
                }
            };
            let found = page.state.subjects.unwrap_or_default();
            seen += found.len();
            let is_last = found.is_empty() || seen >= page.total;
            subjects.extend(found);
            if is_last {
                return Ok(subjects);
            }
        }
    }

    async fn subscribe_wake_ups(&self, subject: &str) -> Result<WakeUpSubscription, Error> {
        validate::subject(subject)?;
        let what = || format!("doorbell of {subject}");
        let mut messages = match self.connection.client.subscribe(subject.to_owned()).await {
            Ok(messages) => messages,
            Err(error) => return Err(Error::failed(what(), error)),
        };
        let (bell, doorbell) = WakeUpSubscription::new(());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = bell.closed() => return,
                    message = messages.next() => if message.is_none() { return },
                }
                // Full: it is ringing already.
                let _ = bell.try_send(());
            }
        });
        Ok(doorbell)
    }
}

/// Whether a removal was refused because there is nothing to remove: a sequence that was removed before, or one that the
/// log has never come to, which the server says in words alone.
fn is_absent(error: &ApiError) -> bool {
    let words = ["no message found", "EOF"];
    error.err_code == NO_SUCH_MESSAGE
        || error.err_code == NOT_REMOVED && words.iter().any(|words| error.description.contains(words))
}

async fn next_within(
    timeout: Duration,
    answers: &mut async_nats::Subscriber,
) -> Result<async_nats::Message, RequestError> {
    match tokio::time::timeout(timeout, answers.next()).await {
        Ok(Some(answer)) if answer.status == Some(StatusCode::NO_RESPONDERS) => {
            Err(RequestError::NoResponders)
        }
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(RequestError::NoResponse("the connection was closed".to_owned())),
        Err(_) => Err(RequestError::NoResponse(format!("no answer within {timeout:?}"))),
    }
}

fn from_leader(message: StreamMessage) -> Message {
    Message {
        subject: message.subject.to_string(),
        sequence: message.sequence,
        payload: message.payload,
        stored_at: micros(message.time.unix_timestamp_nanos()),
    }
}

fn from_replica(answer: &async_nats::Message) -> Result<Message, RequestError> {
    let read = || {
        let headers = answer.headers.as_ref()?;
        let header = |name: &str| headers.get(name).map(HeaderValue::as_str);
        let stored_at = datetime::parse_rfc3339(header(NATS_TIME_STAMP.as_ref())?).ok()?;
        Some(Message {
            subject: header(NATS_SUBJECT.as_ref())?.to_owned(),
            sequence: header(NATS_SEQUENCE.as_ref())?.parse().ok()?,
            payload: answer.payload.clone(),
            stored_at: micros(stored_at.unix_timestamp_nanos()),
        })
    };
    read().ok_or_else(|| RequestError::NoResponse("a message without its place in the stream".to_owned()))
}
