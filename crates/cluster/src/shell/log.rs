//! Requests about the log. What the log says of itself is asked before and after its messages are read: its end must have
//! been there before, its beginning after, and it must have been the same log all the time.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;

use super::backend_client::{BackendClient, MAX_PARALLEL_REQUESTS, names};
use super::decoder::MessageDecoder;
use crate::backend::{self, AppendCondition, Error, Log};
use crate::core::types::{LogId, PartitionList, Sequence};
use crate::core::{
    Event, LogInfo, LogInspection, LogPage, Position, ProcessRequest, ReadError, RequestId, SubjectList,
};

/// More partitions than this are first sorted into those that have messages and those that have none.
const SUBJECT_LIST_THRESHOLD: usize = 100;

impl BackendClient {
    fn log(&self) -> Result<&Arc<dyn Log>, Error> {
        let missing = || Error::invalid("log", "this worker was started without one");
        self.logs.as_ref().map(|(log, _)| log).ok_or_else(missing)
    }

    async fn info(&self) -> Result<backend::LogInfo, Error> {
        let log = self.log()?;
        self.request("info of the log", log.info()).await
    }

    /// Reads something of the log, with what the log says of itself around it.
    async fn with_log_info<T>(
        &self,
        read: impl Future<Output = Result<T, Error>>,
    ) -> Result<(LogInfo, T), Error> {
        let before = self.info().await?;
        let found = read.await?;
        let after = self.info().await?;
        if before.created != after.created || after.last < before.last || after.first > before.last + 1 {
            return Err(Error::failed("reading the log", "it changed meanwhile"));
        }
        Ok((
            LogInfo {
                log_id: LogId(before.created),
                first: Sequence(after.first),
                last: Sequence(before.last),
            },
            found,
        ))
    }

    /// Carries out [`crate::core::Effect::InspectLog`].
    pub(super) async fn inspect_log(
        &self,
        request_id: RequestId,
        partitions: Vec<Arc<str>>,
        decoder: &MessageDecoder,
    ) -> Event {
        let result = self.with_log_info(self.lasts(&partitions)).await;
        let result = result.map(|(info, messages)| {
            let last = |(partition, message): (&Arc<str>, Option<backend::Message>)| {
                message.map(|message| decoder.last_message(partition, &message))
            };
            LogInspection { info, last_messages: partitions.iter().zip(messages).map(last).collect() }
        });
        Event::LogInspected { request_id, result: result.map_err(|_| ReadError) }
    }

    async fn lasts(&self, partitions: &[Arc<str>]) -> Result<Vec<Option<backend::Message>>, Error> {
        let log = self.log()?;
        let filled = match partitions.len() > SUBJECT_LIST_THRESHOLD {
            true => Some(self.request("subjects of the log", log.subjects()).await?),
            false => None,
        };
        let last = |name: Arc<str>| {
            let filled = filled.as_ref();
            async move {
                let subject = self.config.subjects.subject(&name);
                if filled.is_some_and(|filled| !filled.contains_key(&subject)) {
                    return Ok(None);
                }
                self.request(&subject, log.last(&subject)).await
            }
        };
        stream::iter(partitions.iter().cloned().map(last)).buffered(MAX_PARALLEL_REQUESTS).try_collect().await
    }

    /// Carries out [`crate::core::Effect::ReadLog`].
    pub(super) async fn read_log(
        &self,
        request_id: RequestId,
        partition: Arc<str>,
        from: Sequence,
        leader: bool,
        decoder: &MessageDecoder,
    ) -> Event {
        let subject = self.config.subjects.subject(&partition);
        let result = match leader {
            true => {
                let read = self.with_log_info(self.next_two(&subject, from.0)).await;
                read.map(|(info, messages)| (Some(info), messages))
            }
            false => match self.log() {
                Ok(log) => self
                    .request(&subject, log.read(&subject, from.0, 2))
                    .await
                    .map(|messages| (None, messages)),
                Err(error) => Err(error),
            },
        };
        let page = result.map(|(info, read)| LogPage { info, messages: decoder.messages(&partition, read) });
        Event::LogRead { request_id, result: page.map_err(|_| ReadError) }
    }

    async fn next_two(&self, subject: &str, from: u64) -> Result<Vec<backend::Message>, Error> {
        let log = self.log()?;
        let mut messages = Vec::with_capacity(2);
        if let Some(first) = self.request(subject, log.next(subject, from)).await? {
            let second = self.request(subject, log.next(subject, first.sequence + 1)).await?;
            messages.push(first);
            messages.extend(second);
        }
        Ok(messages)
    }

    /// Carries out [`crate::core::Effect::ListSubjects`]. Only partitions that no list has are asked for.
    pub(super) async fn list_subjects(&self, request_id: RequestId, listed: &PartitionList) -> Event {
        let result = self.with_log_info(self.unlisted_partitions(listed)).await;
        let result = result.map(|(info, lasts)| SubjectList { log_id: info.log_id, lasts });
        Event::Subjects { request_id, result: result.map_err(|_| ReadError) }
    }

    async fn unlisted_partitions(&self, listed: &PartitionList) -> Result<Vec<(Arc<str>, Sequence)>, Error> {
        let log = self.log()?;
        let subjects = self.request("subjects of the log", log.subjects()).await?;
        let listed = names(listed);
        let found = subjects.keys().filter_map(|subject| self.config.subjects.partition(subject));
        let strangers: Vec<Arc<str>> = found.filter(|name| !listed.contains(&**name)).collect();
        let lasts = self.lasts(&strangers).await?;
        Ok(strangers
            .into_iter()
            .zip(lasts)
            .filter_map(|(name, last)| Some((name, Sequence(last?.sequence))))
            .collect())
    }

    /// Carries out [`crate::core::Effect::PublishDeadLetter`].
    pub(super) async fn publish_dead(
        &self,
        request_id: RequestId,
        partition: Arc<str>,
        work: Box<ProcessRequest>,
        reason: Arc<str>,
    ) -> Event {
        let happened = match &self.logs {
            Some((_, dead_letters)) => {
                let subject = self.dead_letter_subject(&partition, work.position);
                let id_field = self.config.names.field("messageId");
                let letter = dead_letter(&partition, &work, &reason, id_field);
                let appended = self
                    .request(&subject, dead_letters.append(&subject, letter, AppendCondition::EmptySubject))
                    .await;
                // A refusal means that it is there.
                appended.map_or_else(|error| error.is_conflict(), |_| true)
            }
            None => false,
        };
        Event::DeadLetterStep { request_id, happened }
    }

    fn dead_letter_subject(&self, partition: &str, position: Position) -> String {
        let Position { generation, sequence } = position;
        let prefix = &self.config.dead_letter_prefix;
        format!("{prefix}.{}.{generation}-{sequence}", partition.replace(':', "."))
    }
}

/// Why a message is dead, and the message in full: as text where it is text, in base64 otherwise.
fn dead_letter(partition: &str, work: &ProcessRequest, reason: &str, id_field: &str) -> Bytes {
    let payload = &*work.message.payload;
    let mut letter = json!({
        "v": 1,
        "partition": partition,
        "reason": reason,
        "attempts": work.attempt,
        id_field: &*work.message.message_id,
        "generation": work.position.generation,
        "sequence": work.position.sequence.0,
        "stream": work.log_id.map_or(0, |log| log.0),
        "storedAt": work.message.stored_at,
    });
    match std::str::from_utf8(payload) {
        Ok(text) => letter["original"] = text.into(),
        Err(_) => letter["originalBase64"] = STANDARD.encode(payload).into(),
    }
    letter.to_string().into()
}
