//! The log of the simulated broker: messages with sequences in many subjects, kept for a while.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster_core::types::{LogId, Sequence, Time};
use phalanx_cluster_core::{LastMessage, LogInfo, Message};

use crate::HashMap;

/// The time in which the broker drops a message with a known id.
pub(crate) const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// A log. `Id` is the type of the ids by which it drops duplicates.
#[derive(Debug)]
pub(crate) struct Log<Id> {
    log_id: LogId,
    first: Sequence,
    last: Sequence,
    /// The sequence, store time and subject of each retained message.
    order: VecDeque<(Sequence, Time, u32)>,
    subjects: Vec<VecDeque<Message>>,
    ids: HashMap<Id, (Time, Sequence)>,
    pub(crate) retention: Duration,
    pub(crate) duplicate_window: Duration,
}

impl<Id: Hash + Eq> Log<Id> {
    /// An empty log.
    pub(crate) fn new(log_id: LogId, retention: Duration) -> Self {
        Self {
            log_id,
            first: Sequence::FIRST,
            last: Sequence::START,
            order: VecDeque::new(),
            subjects: Vec::new(),
            ids: HashMap::default(),
            retention,
            duplicate_window: DUPLICATE_WINDOW,
        }
    }

    /// Returns the identity and the range of the log.
    pub(crate) fn info(&self) -> LogInfo {
        LogInfo { log_id: self.log_id, first: self.first, last: self.last }
    }

    /// Returns the number of retained messages.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the sequence of the message with an id, if it is in the duplicate window.
    pub(crate) fn duplicate_of(&self, now: Time, id: &Id) -> Option<Sequence> {
        let &(at, sequence) = self.ids.get(id)?;
        (now.saturating_sub(at) < self.duplicate_window).then_some(sequence)
    }

    /// Appends a message unless one with its id is in the duplicate window. Returns its sequence.
    pub(crate) fn append(
        &mut self,
        (now, micros): (Time, u64),
        subject: u32,
        id: Option<Id>,
        message_id: Arc<str>,
        payload: Arc<[u8]>,
    ) -> Option<Sequence> {
        if id.as_ref().is_some_and(|id| self.duplicate_of(now, id).is_some()) {
            return None;
        }
        self.last = self.last.next();
        self.ids.extend(id.map(|id| (id, (now, self.last))));
        if self.subjects.len() <= subject as usize {
            self.subjects.resize(subject as usize + 1, VecDeque::new());
        }
        let message = Message { sequence: self.last, message_id, stored_at: micros, payload };
        self.subjects[subject as usize].push_back(message);
        self.order.push_back((self.last, now, subject));
        Some(self.last)
    }

    /// Deletes expired messages and returns their subjects and sequences.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<(u32, Sequence)> {
        let mut gone = Vec::new();
        while let Some(&(sequence, at, subject)) = self.order.front() {
            if now.saturating_sub(at) < self.retention {
                break;
            }
            self.order.pop_front();
            self.subjects[subject as usize].pop_front();
            self.first = sequence.next();
            gone.push((subject, sequence));
        }
        gone
    }

    /// Deletes one message. Returns whether the log had it.
    pub(crate) fn remove(&mut self, sequence: Sequence) -> bool {
        let Ok(index) = self.order.binary_search_by_key(&sequence, |(sequence, ..)| *sequence) else {
            return false;
        };
        let Some((_, _, subject)) = self.order.remove(index) else { return false };
        self.subjects[subject as usize].retain(|message| message.sequence != sequence);
        if index == 0 {
            self.first = self.order.front().map_or(self.last.next(), |(first, ..)| *first);
        }
        true
    }

    /// Deletes the newest messages, as a server that had not flushed them, and returns their subjects and sequences.
    pub(crate) fn lose_tail(&mut self, count: usize) -> Vec<(u32, Sequence)> {
        let mut gone = Vec::new();
        for _ in 0..count {
            let Some((sequence, _, subject)) = self.order.pop_back() else { break };
            self.subjects[subject as usize].pop_back();
            self.last = sequence.previous();
            gone.push((subject, sequence));
        }
        self.ids.clear();
        gone
    }

    /// Deletes and recreates the log. Returns the subjects and sequences of its messages.
    pub(crate) fn recreate(&mut self, log_id: LogId) -> Vec<(u32, Sequence)> {
        let gone = self.order.iter().map(|&(sequence, _, subject)| (subject, sequence)).collect();
        let duplicate_window = self.duplicate_window;
        *self = Self { duplicate_window, ..Self::new(log_id, self.retention) };
        gone
    }

    /// Returns the last retained message of a subject.
    pub(crate) fn last_of(&self, subject: u32) -> Option<&Message> {
        self.subjects.get(subject as usize)?.back()
    }

    /// Returns the id and sequence of the last retained message of a subject.
    pub(crate) fn last_id_of(&self, subject: u32) -> Option<LastMessage> {
        let message = self.last_of(subject)?;
        Some(LastMessage { sequence: message.sequence, message_id: message.message_id.clone() })
    }

    /// Returns up to `limit` messages of a subject from a sequence on, as a replica has them that knows nothing after
    /// `until`.
    pub(crate) fn read(&self, subject: u32, from: Sequence, limit: usize, until: u64) -> Vec<Message> {
        let Some(subject) = self.subjects.get(subject as usize) else { return Vec::new() };
        let start = subject.partition_point(|message| message.sequence < from);
        let page = subject.range(start..).take(limit);
        page.filter(|message| message.stored_at <= until).cloned().collect()
    }

    /// Returns the subjects that have messages, with the number and the last sequence of each.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = (u32, usize, Sequence)> {
        let last = |(subject, messages): (u32, &VecDeque<Message>)| {
            messages.back().map(|message| (subject, messages.len(), message.sequence))
        };
        (0..).zip(&self.subjects).filter_map(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log<u8> {
        let mut log = Log::new(LogId(1), Duration::from_secs(10));
        for id in 1..=3 {
            let at = (Time::from_secs(id.into()), id.into());
            log.append(at, 0, Some(id), "".into(), Arc::new([id])).expect("a new id");
        }
        log
    }

    #[test]
    fn an_id_is_taken_once_in_the_window() {
        let mut log = log();
        let again = |log: &mut Log<u8>, seconds| {
            log.append((Time::from_secs(seconds), 0), 1, Some(1), "".into(), Arc::new([1]))
        };
        assert_eq!(again(&mut log, 120), None);
        assert_eq!(again(&mut log, 121), Some(Sequence(4)));
    }

    #[test]
    fn messages_go_by_age_from_the_front_and_with_the_tail_from_the_end() {
        let mut log = log();
        assert_eq!(log.expire(Time::from_secs(11)), [(0, Sequence(1))]);
        assert_eq!(log.lose_tail(1), [(0, Sequence(3))]);
        assert_eq!(log.info(), LogInfo { log_id: LogId(1), first: Sequence(2), last: Sequence(2) });
        assert_eq!(log.recreate(LogId(2)), [(0, Sequence(2))]);
        assert_eq!((log.len(), log.info().last), (0, Sequence::START));
    }
}
