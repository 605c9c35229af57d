//! The log: one stream of messages with sequences, kept for a while, and the stream of dead letters.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster_core::types::{LogId, Sequence, Time};
use phalanx_cluster_core::{LastMessage, LogInfo, Message, Position};

use crate::HashMap;

/// How long the broker remembers ids of messages, to drop repetitions.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// What the publisher has put into a message: how it will behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageKind {
    /// It is processed.
    Good,
    /// Whoever processes it dies.
    CrashesWorker,
    /// It can never be processed.
    Poison,
    /// It fails this often.
    Flaky(u8),
    /// Its processing never ends by itself.
    NeverEnds,
}

/// The publisher's number of a message in its partition, and its kind.
pub(crate) fn encode(number: u64, kind: MessageKind) -> Arc<[u8]> {
    let kind = match kind {
        MessageKind::Good => 0,
        MessageKind::CrashesWorker => 1,
        MessageKind::Poison => 2,
        MessageKind::NeverEnds => 3,
        MessageKind::Flaky(times) => 10 + times,
    };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.into()
}

pub(crate) fn decode(payload: &[u8]) -> (u64, MessageKind) {
    let mut number = [0; 8];
    number.copy_from_slice(&payload[..8]);
    let kind = match payload[8] {
        0 => MessageKind::Good,
        1 => MessageKind::CrashesWorker,
        2 => MessageKind::Poison,
        3 => MessageKind::NeverEnds,
        times => MessageKind::Flaky(times - 10),
    };
    (u64::from_le_bytes(number), kind)
}

/// The stream of notifications.
#[derive(Debug)]
pub(crate) struct Log {
    log_id: LogId,
    first: Sequence,
    last: Sequence,
    /// When each retained message was stored, and of which partition it is.
    order: VecDeque<(Sequence, Time, u32)>,
    subjects: Vec<VecDeque<Message>>,
    ids: HashMap<(u32, u64), Time>,
    pub(crate) retention: Duration,
    dead_letters: BTreeSet<(u32, Position)>,
}

impl Log {
    pub(crate) fn new(log_id: LogId, retention: Duration) -> Self {
        Self {
            log_id,
            first: Sequence::FIRST,
            last: Sequence::START,
            order: VecDeque::new(),
            subjects: Vec::new(),
            ids: HashMap::default(),
            retention,
            dead_letters: BTreeSet::new(),
        }
    }

    pub(crate) fn info(&self) -> LogInfo {
        LogInfo { log_id: self.log_id, first: self.first, last: self.last }
    }

    /// Appends a message unless one with its id was appended lately. Gives its sequence.
    pub(crate) fn append(
        &mut self,
        now: Time,
        micros: u64,
        partition: u32,
        id: (u32, u64),
        context: Arc<str>,
        payload: Arc<[u8]>,
    ) -> Option<Sequence> {
        if self.ids.get(&id).is_some_and(|at| now.saturating_sub(*at) < DUPLICATE_WINDOW) {
            return None;
        }
        self.ids.insert(id, now);
        self.last = self.last.next();
        if self.subjects.len() <= partition as usize {
            self.subjects.resize(partition as usize + 1, VecDeque::new());
        }
        let message = Message { sequence: self.last, message_id: context, stored_at: micros, payload };
        self.subjects[partition as usize].push_back(message);
        self.order.push_back((self.last, now, partition));
        Some(self.last)
    }

    /// Forgets what is too old. Gives the sequences that are gone, with their partitions.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<(u32, Sequence)> {
        let mut gone = Vec::new();
        while let Some(&(sequence, at, partition)) = self.order.front() {
            if now.saturating_sub(at) < self.retention {
                break;
            }
            self.order.pop_front();
            self.subjects[partition as usize].pop_front();
            self.first = sequence.next();
            gone.push((partition, sequence));
        }
        gone
    }

    /// Loses the newest messages, as a server that had not flushed them does. Gives what is gone.
    pub(crate) fn lose_tail(&mut self, count: usize) -> Vec<(u32, Sequence)> {
        let mut gone = Vec::new();
        for _ in 0..count {
            let Some((sequence, _, partition)) = self.order.pop_back() else { break };
            self.subjects[partition as usize].pop_back();
            self.last = sequence.previous();
            gone.push((partition, sequence));
        }
        self.ids.clear();
        gone
    }

    /// Deleted and made anew. Gives what is gone.
    pub(crate) fn recreate(&mut self, log_id: LogId) -> Vec<(u32, Sequence)> {
        let gone = self.order.iter().map(|&(sequence, _, partition)| (partition, sequence)).collect();
        let letters = std::mem::take(&mut self.dead_letters);
        *self = Self { dead_letters: letters, ..Self::new(log_id, self.retention) };
        gone
    }

    /// The last retained message of a partition.
    pub(crate) fn last_of(&self, partition: u32) -> Option<LastMessage> {
        let message = self.subjects.get(partition as usize)?.back()?;
        Some(LastMessage { sequence: message.sequence, message_id: message.message_id.clone() })
    }

    /// Up to two messages of a partition from a sequence on, as a replica has them that knows nothing after `until`.
    pub(crate) fn read(&self, partition: u32, from: Sequence, until: u64) -> Vec<Message> {
        let Some(subject) = self.subjects.get(partition as usize) else { return Vec::new() };
        let start = subject.partition_point(|message| message.sequence < from);
        let page = subject.range(start..).take(2);
        page.filter(|message| message.stored_at <= until).cloned().collect()
    }

    /// Partitions that have messages, with the last sequence of each.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (u32, Sequence)> {
        let last = |(partition, subject): (usize, &VecDeque<Message>)| {
            subject.back().map(|message| (partition as u32, message.sequence))
        };
        self.subjects.iter().enumerate().filter_map(last)
    }

    /// Publishes a dead letter where none is yet. Says whether it was stored now.
    pub(crate) fn append_dead_letter(&mut self, partition: u32, position: Position) -> bool {
        self.dead_letters.insert((partition, position))
    }
}
