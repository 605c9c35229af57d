//! The rows of the result store, each with a fencing token and a write timestamp. The store cannot fence a writer.

use std::collections::BTreeMap;

use phalanx_cluster_core::types::{FencingToken, LogId, WriteTimestamp};
use phalanx_cluster_core::{Position, RecoveryPoint};

use crate::HashMap;
use crate::broker::message_id;
use crate::store::history::{History, mix};

/// The number of handler states of a partition that are kept.
const MAX_STATES: usize = 16;

/// A handler state at a position.
#[derive(Clone, Debug)]
pub(crate) struct StoredState {
    time: WriteTimestamp,
    pub(crate) predecessor: Option<Position>,
    /// The publisher's number of the message at the predecessor.
    pub(crate) before: Option<u64>,
    pub(crate) number: u64,
    log_id: Option<LogId>,
    pub(crate) history: History,
}

/// The results of one processing.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    pub(crate) partition: u32,
    pub(crate) position: Position,
    pub(crate) predecessor: Option<Position>,
    pub(crate) before: Option<u64>,
    pub(crate) number: u64,
    pub(crate) log_id: Option<LogId>,
    pub(crate) fencing_token: FencingToken,
    pub(crate) write_timestamp: WriteTimestamp,
    /// The indicators that are written, with their contents; none for a dead or repeated message.
    pub(crate) rows: Vec<(u8, u64)>,
    /// Whether it is a message that counts: then it also writes the latest report of its partition.
    pub(crate) counts: bool,
    pub(crate) history: History,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    time: WriteTimestamp,
    position: Position,
    fencing_token: FencingToken,
    content: u64,
}

/// The rules that the store and its readers follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreRules {
    /// A lower time never replaces a higher one.
    pub(crate) higher_wins: bool,
    /// Readers ignore rows of other fencing tokens than the one that counts.
    pub(crate) token_counts: bool,
}

/// Rows, handler states and reports of all partitions.
#[derive(Debug)]
pub(crate) struct Rows {
    rules: StoreRules,
    rows: HashMap<(u32, u64), BTreeMap<u8, Row>>,
    /// The time of each message's results, and the fencing token whose rows count.
    contexts: HashMap<(u32, Position), (WriteTimestamp, FencingToken)>,
    states: HashMap<u32, BTreeMap<Position, StoredState>>,
    /// The latest report of a partition: its time, and the message and the fencing token that wrote it.
    reports: HashMap<u32, (WriteTimestamp, u64, FencingToken)>,
}

impl Rows {
    pub(crate) fn new(rules: StoreRules) -> Self {
        Self {
            rules,
            rows: HashMap::default(),
            contexts: HashMap::default(),
            states: HashMap::default(),
            reports: HashMap::default(),
        }
    }

    /// Writes results; what is newer stays.
    pub(crate) fn write(&mut self, results: &Results) {
        let time = WriteTimestamp(results.write_timestamp.0 + results.fencing_token.0);
        let Results { partition, position, number, fencing_token, .. } = *results;
        let wins = |known: Option<WriteTimestamp>| {
            !self.rules.higher_wins || known.is_none_or(|known| known <= time)
        };
        let rows = self.rows.entry((partition, number)).or_default();
        for &(indicator, content) in &results.rows {
            if wins(rows.get(&indicator).map(|row| row.time)) {
                rows.insert(indicator, Row { time, position, fencing_token, content });
            }
        }
        if wins(self.contexts.get(&(partition, position)).map(|known| known.0)) {
            self.contexts.insert((partition, position), (time, fencing_token));
        }
        if results.counts && wins(self.reports.get(&partition).map(|known| known.0)) {
            self.reports.insert(partition, (time, number, fencing_token));
        }
        let states = self.states.entry(partition).or_default();
        if wins(states.get(&position).map(|known| known.time)) {
            let state = StoredState {
                time,
                predecessor: results.predecessor,
                before: results.before,
                number,
                log_id: results.log_id,
                history: results.history.clone(),
            };
            states.insert(position, state);
        }
        while states.len() > MAX_STATES {
            states.pop_first();
        }
    }

    /// Returns the handler state at exactly that position.
    pub(crate) fn state_at(&self, partition: u32, position: Position) -> Option<&StoredState> {
        self.states.get(&partition)?.get(&position)
    }

    /// Returns the newest handler state of any writer.
    pub(crate) fn newest(&self, partition: u32) -> Option<(Position, &StoredState)> {
        self.states.get(&partition)?.last_key_value().map(|(position, state)| (*position, state))
    }

    /// Returns the recovery point of a partition.
    pub(crate) fn recovery_point(&self, partition: u32) -> Option<RecoveryPoint> {
        let (newest, state) = self.newest(partition)?;
        Some(RecoveryPoint {
            newest,
            predecessor: state.predecessor,
            message_id: state.before.map(message_id),
            log_id: state
                .predecessor
                .and_then(|before| self.state_at(partition, before))
                .and_then(|before| before.log_id),
            write_timestamp: state.time,
        })
    }

    /// Returns what a reader sees of a message: a sum over its rows.
    pub(crate) fn visible(&self, partition: u32, position: Position, number: u64) -> u64 {
        let token = self.contexts.get(&(partition, position)).map(|context| context.1);
        let rows = self.rows.get(&(partition, number)).into_iter().flat_map(|rows| rows.iter());
        let counted = rows.filter(|(_, row)| {
            !self.rules.token_counts || row.position == position && Some(row.fencing_token) == token
        });
        counted.fold(0, |sum, (indicator, row)| mix(sum, row.content ^ u64::from(*indicator)))
    }

    /// Returns the message and the fencing token of the latest report of a partition.
    pub(crate) fn latest_report(&self, partition: u32) -> Option<(u64, FencingToken)> {
        self.reports.get(&partition).map(|&(_, number, token)| (number, token))
    }
}
