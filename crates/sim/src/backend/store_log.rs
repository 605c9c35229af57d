//! A log of bytes with named subjects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use phalanx_cluster::backend::{Appended, Error, LogConfig, LogInfo, Message};
use phalanx_cluster_core as core;
use phalanx_cluster_core::types::{LogId, Sequence, Time};

use crate::backend::request::Expect;
use crate::broker::Log;

/// One log of a server.
#[derive(Debug)]
pub(crate) struct StoreLog {
    config: LogConfig,
    pub(crate) description: String,
    pub(crate) log: Log<String>,
    /// The names of the subjects, in the order of their first messages.
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl StoreLog {
    /// An empty log. Its identity is the time of its creation.
    pub(crate) fn new(config: &LogConfig, created: u64) -> Self {
        let mut log = Log::new(LogId(created), config.max_age.unwrap_or(Duration::MAX));
        log.duplicate_window = config.duplicate_window;
        Self {
            config: config.clone(),
            description: config.description.clone().unwrap_or_default(),
            log,
            names: Vec::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Returns the number of a subject that ever had a message.
    fn number(&self, subject: &str) -> Option<u32> {
        self.numbers.get(subject).copied()
    }

    /// Returns the name of a subject by its number.
    pub(crate) fn subject(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    /// Appends a message if the condition holds.
    pub(crate) fn append(
        &mut self,
        at: (Time, u64),
        subject: &str,
        payload: &Bytes,
        expect: Expect,
    ) -> Result<Appended, Error> {
        let what = || format!("append to {subject} in {}", self.config.name);
        let id = match expect {
            Expect::NewId(id) => {
                if let Some(first) = self.log.duplicate_of(at.0, &id) {
                    return Ok(Appended { sequence: first.0, duplicate: true });
                }
                Some(id)
            }
            Expect::EmptySubject if self.last(subject).is_some() => {
                return Err(Error::conflict(what(), None));
            }
            Expect::EmptySubject | Expect::Nothing => None,
        };
        if self.config.max_messages.is_some_and(|max| self.log.len() as u64 >= max) {
            return Err(Error::failed(what(), "the log is full"));
        }
        let number = self.number(subject).unwrap_or_else(|| {
            self.names.push(subject.to_owned());
            let number = self.names.len() as u32 - 1;
            self.numbers.insert(subject.to_owned(), number);
            number
        });
        let sequence = self.log.append(at, number, id, "".into(), Arc::from(&**payload));
        let sequence = sequence.ok_or_else(|| Error::failed("append", "the message is a duplicate"))?;
        Ok(Appended { sequence: sequence.0, duplicate: false })
    }

    /// Returns up to `limit` messages of a subject from a sequence on that were stored until a time.
    pub(crate) fn read(&self, subject: &str, from: u64, limit: usize, until: u64) -> Vec<Message> {
        let Some(number) = self.number(subject) else { return Vec::new() };
        let messages = self.log.read(number, Sequence(from), limit, until);
        messages.iter().map(|found| message(subject, found)).collect()
    }

    /// Returns the last message of a subject.
    pub(crate) fn last(&self, subject: &str) -> Option<Message> {
        self.log.last_of(self.number(subject)?).map(|found| message(subject, found))
    }

    /// Returns the identity and the range of the log.
    pub(crate) fn info(&self) -> LogInfo {
        let info = self.log.info();
        let messages = self.log.len() as u64;
        LogInfo { created: info.log_id.0, first: info.first.0, last: info.last.0, messages }
    }

    /// Returns the subjects that have messages, with their numbers of messages.
    pub(crate) fn subjects(&self) -> BTreeMap<String, u64> {
        let subjects = self.log.subjects();
        subjects.map(|(subject, count, _)| (self.subject(subject).to_owned(), count as u64)).collect()
    }
}

fn message(subject: &str, found: &core::Message) -> Message {
    Message {
        subject: subject.to_owned(),
        sequence: found.sequence.0,
        payload: Bytes::copy_from_slice(&found.payload),
        stored_at: found.stored_at,
    }
}
