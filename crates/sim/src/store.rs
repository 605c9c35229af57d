//! The chart store: rows that carry their take and their time stamp, and know no fence.

use std::collections::BTreeMap;

use phalanx_cluster_core::{Origin, Position};

use crate::HashMap;

/// How many chart states of a chamber are kept.
const STATES_KEPT: usize = 16;

/// What makes the history of a chamber: a chain over every message that counts, and which numbers it has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) chain: u64,
    /// Numbers of the publisher that were processed, as ranges.
    seen: Vec<(u64, u64)>,
}

impl History {
    pub(crate) fn knows(&self, number: u64) -> bool {
        self.seen.iter().any(|&(low, high)| (low..=high).contains(&number))
    }

    pub(crate) fn with(&self, number: u64) -> Self {
        let mut seen = self.seen.clone();
        match seen.iter_mut().find(|(_, high)| *high + 1 == number) {
            Some((_, high)) => *high = number,
            None => seen.push((number, number)),
        }
        Self { chain: mix(self.chain, number + 1), seen }
    }
}

/// Mixes a word into a chain.
pub(crate) fn mix(chain: u64, word: u64) -> u64 {
    let z = (chain ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 29)
}

/// A chart state at a position.
#[derive(Clone, Debug)]
pub(crate) struct State {
    time: u64,
    pub(crate) predecessor: Option<Position>,
    /// The publisher's number of the message at the predecessor.
    pub(crate) before: Option<u64>,
    pub(crate) number: u64,
    stream: u64,
    pub(crate) history: History,
}

/// What one processing writes.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    pub(crate) chamber: u32,
    pub(crate) position: Position,
    pub(crate) predecessor: Option<Position>,
    pub(crate) before: Option<u64>,
    pub(crate) number: u64,
    pub(crate) stream: u64,
    pub(crate) take: u64,
    pub(crate) stamp: u64,
    /// Which indicators are written, and what they say; none for a dead or repeated message.
    pub(crate) rows: Vec<(u8, u64)>,
    /// Whether it is a message that counts: then it also writes the alarms of its chamber.
    pub(crate) counts: bool,
    pub(crate) history: History,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    time: u64,
    position: Position,
    take: u64,
    content: u64,
}

/// Which rules the store and its readers follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A lower time never replaces a higher one.
    pub(crate) higher_wins: bool,
    /// Readers ignore rows of other takes than the one that counts.
    pub(crate) take_counts: bool,
}

#[derive(Debug)]
pub(crate) struct Store {
    rules: Rules,
    rows: HashMap<(u32, u64), BTreeMap<u8, Row>>,
    /// The take whose rows count.
    contexts: HashMap<(u32, Position), (u64, u64)>,
    states: HashMap<u32, BTreeMap<Position, State>>,
    /// The last word on the alarm of a chamber: its time, and the message and take that said it.
    alarms: HashMap<u32, (u64, u64, u64)>,
}

impl Store {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            rows: HashMap::default(),
            contexts: HashMap::default(),
            states: HashMap::default(),
            alarms: HashMap::default(),
        }
    }

    /// Writes results; what is newer stays.
    pub(crate) fn write(&mut self, results: &Results) {
        let time = results.stamp + results.take;
        let Results { chamber, position, number, take, .. } = *results;
        let wins = |known: Option<u64>| !self.rules.higher_wins || known.is_none_or(|known| known <= time);
        let rows = self.rows.entry((chamber, number)).or_default();
        for &(indicator, content) in &results.rows {
            if wins(rows.get(&indicator).map(|row| row.time)) {
                rows.insert(indicator, Row { time, position, take, content });
            }
        }
        if wins(self.contexts.get(&(chamber, position)).map(|known| known.0)) {
            self.contexts.insert((chamber, position), (time, take));
        }
        if results.counts && wins(self.alarms.get(&chamber).map(|known| known.0)) {
            self.alarms.insert(chamber, (time, number, take));
        }
        let states = self.states.entry(chamber).or_default();
        if wins(states.get(&position).map(|known| known.time)) {
            let state = State {
                time,
                predecessor: results.predecessor,
                before: results.before,
                number,
                stream: results.stream,
                history: results.history.clone(),
            };
            states.insert(position, state);
        }
        while states.len() > STATES_KEPT {
            states.pop_first();
        }
    }

    /// The chart state at exactly that position.
    pub(crate) fn state_at(&self, chamber: u32, position: Position) -> Option<&State> {
        self.states.get(&chamber)?.get(&position)
    }

    /// The newest chart state, whoever wrote it.
    pub(crate) fn newest(&self, chamber: u32) -> Option<(Position, &State)> {
        self.states.get(&chamber)?.last_key_value().map(|(position, state)| (*position, state))
    }

    /// How far a chamber came.
    pub(crate) fn origin(&self, chamber: u32) -> Option<Origin> {
        let (newest, state) = self.newest(chamber)?;
        Some(Origin {
            newest,
            predecessor: state.predecessor,
            context: state.before.map_or_else(|| "".into(), context_name),
            stream: state
                .predecessor
                .and_then(|before| self.state_at(chamber, before))
                .map_or(0, |s| s.stream),
            stamp: state.time,
        })
    }

    /// What a reader sees of a message: a sum over its rows.
    pub(crate) fn visible(&self, chamber: u32, position: Position, number: u64) -> u64 {
        let take = self.contexts.get(&(chamber, position)).map(|context| context.1);
        let rows = self.rows.get(&(chamber, number)).into_iter().flat_map(|rows| rows.iter());
        let counted = rows
            .filter(|(_, row)| !self.rules.take_counts || row.position == position && Some(row.take) == take);
        counted.fold(0, |sum, (indicator, row)| mix(sum, row.content ^ u64::from(*indicator)))
    }

    /// The message and the take that said the last word on the alarm of a chamber.
    pub(crate) fn alarm(&self, chamber: u32) -> Option<(u64, u64)> {
        self.alarms.get(&chamber).map(|&(_, number, take)| (number, take))
    }
}

/// The id of a message by its number.
pub(crate) fn context_name(number: u64) -> std::sync::Arc<str> {
    format!("run-{number}").into()
}
