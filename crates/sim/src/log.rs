//! The log: one stream of messages with sequences, kept for a while, and the stream of dead letters.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster_core::types::Time;
use phalanx_cluster_core::{Last, LogInfo, Message, Position};

use crate::HashMap;

/// How long the broker remembers ids of messages, to drop repetitions.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// What the publisher has put into a message: how it will behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is processed.
    Good,
    /// Whoever processes it dies.
    Killer,
    /// It can never be processed.
    Broken,
    /// It fails this often.
    Flaky(u8),
    /// Its processing never ends by itself.
    Endless,
}

/// The publisher's number of a message in its chamber, and its kind.
pub(crate) fn encode(number: u64, kind: Kind) -> Arc<[u8]> {
    let kind = match kind {
        Kind::Good => 0,
        Kind::Killer => 1,
        Kind::Broken => 2,
        Kind::Endless => 3,
        Kind::Flaky(times) => 10 + times,
    };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.into()
}

pub(crate) fn decode(payload: &[u8]) -> (u64, Kind) {
    let mut number = [0; 8];
    number.copy_from_slice(&payload[..8]);
    let kind = match payload[8] {
        0 => Kind::Good,
        1 => Kind::Killer,
        2 => Kind::Broken,
        3 => Kind::Endless,
        times => Kind::Flaky(times - 10),
    };
    (u64::from_le_bytes(number), kind)
}

/// The stream of notifications.
#[derive(Debug)]
pub(crate) struct Log {
    stream: u64,
    first: u64,
    last: u64,
    /// When each retained message was stored, and of which chamber it is.
    order: VecDeque<(u64, Time, u32)>,
    subjects: Vec<VecDeque<Message>>,
    ids: HashMap<(u32, u64), Time>,
    pub(crate) retention: Duration,
    letters: BTreeSet<(u32, Position)>,
}

impl Log {
    pub(crate) fn new(stream: u64, retention: Duration) -> Self {
        Self {
            stream,
            first: 1,
            last: 0,
            order: VecDeque::new(),
            subjects: Vec::new(),
            ids: HashMap::default(),
            retention,
            letters: BTreeSet::new(),
        }
    }

    pub(crate) fn info(&self) -> LogInfo {
        LogInfo { stream: self.stream, first: self.first, last: self.last }
    }

    /// Appends a message unless one with its id was appended lately. Gives its sequence.
    pub(crate) fn append(
        &mut self,
        now: Time,
        micros: u64,
        chamber: u32,
        id: (u32, u64),
        context: Arc<str>,
        payload: Arc<[u8]>,
    ) -> Option<u64> {
        if self.ids.get(&id).is_some_and(|at| now.saturating_sub(*at) < DUPLICATE_WINDOW) {
            return None;
        }
        self.ids.insert(id, now);
        self.last += 1;
        if self.subjects.len() <= chamber as usize {
            self.subjects.resize(chamber as usize + 1, VecDeque::new());
        }
        let message = Message { sequence: self.last, context, stored_at: micros, payload };
        self.subjects[chamber as usize].push_back(message);
        self.order.push_back((self.last, now, chamber));
        Some(self.last)
    }

    /// Forgets what is too old. Gives the sequences that are gone, with their chambers.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<(u32, u64)> {
        let mut gone = Vec::new();
        while let Some(&(sequence, at, chamber)) = self.order.front() {
            if now.saturating_sub(at) < self.retention {
                break;
            }
            self.order.pop_front();
            self.subjects[chamber as usize].pop_front();
            self.first = sequence + 1;
            gone.push((chamber, sequence));
        }
        gone
    }

    /// Loses the newest messages, as a server that had not flushed them does. Gives what is gone.
    pub(crate) fn lose_tail(&mut self, count: usize) -> Vec<(u32, u64)> {
        let mut gone = Vec::new();
        for _ in 0..count {
            let Some((sequence, _, chamber)) = self.order.pop_back() else { break };
            self.subjects[chamber as usize].pop_back();
            self.last = sequence - 1;
            gone.push((chamber, sequence));
        }
        self.ids.clear();
        gone
    }

    /// Deleted and made anew. Gives what is gone.
    pub(crate) fn recreate(&mut self, stream: u64) -> Vec<(u32, u64)> {
        let gone = self.order.iter().map(|&(sequence, _, chamber)| (chamber, sequence)).collect();
        let letters = std::mem::take(&mut self.letters);
        *self = Self { letters, ..Self::new(stream, self.retention) };
        gone
    }

    /// The last retained message of a chamber.
    pub(crate) fn last_of(&self, chamber: u32) -> Option<Last> {
        let message = self.subjects.get(chamber as usize)?.back()?;
        Some(Last { sequence: message.sequence, context: message.context.clone() })
    }

    /// Up to two messages of a chamber from a sequence on, as a replica has them that knows nothing after `until`.
    pub(crate) fn read(&self, chamber: u32, from: u64, until: u64) -> Vec<Message> {
        let Some(subject) = self.subjects.get(chamber as usize) else { return Vec::new() };
        let start = subject.partition_point(|message| message.sequence < from);
        let page = subject.range(start..).take(2);
        page.filter(|message| message.stored_at <= until).cloned().collect()
    }

    /// Chambers that have messages, with the last sequence of each.
    pub(crate) fn chambers(&self) -> impl Iterator<Item = (u32, u64)> {
        let last = |(chamber, subject): (usize, &VecDeque<Message>)| {
            subject.back().map(|message| (chamber as u32, message.sequence))
        };
        self.subjects.iter().enumerate().filter_map(last)
    }

    /// Publishes a dead letter where none is yet. Says whether it was stored now.
    pub(crate) fn bury(&mut self, chamber: u32, position: Position) -> bool {
        self.letters.insert((chamber, position))
    }
}
