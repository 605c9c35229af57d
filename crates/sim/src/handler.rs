//! What a worker does with a message: read the chart state, compute, write the results. A model of the pipeline, with the
//! order and the rules of the real one.

use phalanx_cluster_core::{Ticket, Work};

use crate::HashMap;
use crate::log::decode;
use crate::store::{History, Results, Store, mix};

/// What a process remembers of a chamber: the chart state after the last message it committed there.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    number: u64,
    history: History,
}

/// A message that is being processed.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) ticket: Ticket,
    pub(crate) work: Box<Work>,
    pub(crate) results: Option<Results>,
}

impl Run {
    pub(crate) fn new(ticket: Ticket, work: Box<Work>) -> Self {
        Self { ticket, work, results: None }
    }
}

/// The handler of one process.
#[derive(Debug, Default)]
pub(crate) struct Handler {
    pub(crate) runs: HashMap<u32, Run>,
    memory: HashMap<u32, Memory>,
    /// What is remembered if the message is committed.
    pending: HashMap<u32, Memory>,
}

/// How the chart state is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// At exactly the committed position.
    Exact,
    /// The newest, whoever wrote it.
    Newest,
}

impl Handler {
    /// Forgets everything that runs.
    pub(crate) fn drop_all(&mut self) {
        self.runs.clear();
        self.pending.clear();
    }

    /// The message is committed: what was computed from it may be remembered.
    pub(crate) fn committed(&mut self, chamber: u32) {
        if let Some(memory) = self.pending.remove(&chamber) {
            self.memory.insert(chamber, memory);
        }
    }

    /// What is remembered of a chamber does not count any more.
    pub(crate) fn forget(&mut self, chamber: u32) {
        self.memory.remove(&chamber);
    }

    /// Computes the results of a message. None if the chart state that should be there is not.
    pub(crate) fn compute(
        &mut self,
        chamber: u32,
        work: &Work,
        strategy: u64,
        lookup: Lookup,
        store: &Store,
    ) -> Option<Results> {
        let (number, _) = decode(&work.message.payload);
        let base = match (self.memory.get(&chamber), work.committed, lookup) {
            (Some(memory), ..) => Some(memory.clone()),
            (None, _, Lookup::Newest) => store
                .newest(chamber)
                .map(|(_, state)| Memory { number: state.number, history: state.history.clone() }),
            (None, None, Lookup::Exact) => None,
            (None, Some(position), Lookup::Exact) => {
                let state = store.state_at(chamber, position)?;
                Some(Memory { number: state.number, history: state.history.clone() })
            }
        };
        let before = base.as_ref().map(|base| base.number);
        let known = base.map(|base| base.history).unwrap_or_default();
        let counts = !known.knows(number);
        let history = if counts { known.with(number) } else { known };
        let rows = if counts { rows(history.chain, strategy) } else { Vec::new() };
        self.pending.insert(chamber, Memory { number, history: history.clone() });
        Some(results(chamber, work, before, rows, counts, history))
    }

    /// What is written for a dead message: nothing but the unchanged chart state at its position.
    pub(crate) fn bury(chamber: u32, work: &Work, store: &Store) -> Option<Results> {
        let state = match work.committed {
            Some(position) => Some(store.state_at(chamber, position)?),
            None => None,
        };
        let before = state.map(|state| state.number);
        let history = state.map(|state| state.history.clone()).unwrap_or_default();
        Some(results(chamber, work, before, Vec::new(), false, history))
    }
}

/// One indicator is written by every strategy, another by the odd ones, a third by the even ones.
fn rows(chain: u64, strategy: u64) -> Vec<(u8, u64)> {
    let own = if strategy.is_multiple_of(2) { 1 } else { 2 };
    vec![(0, mix(chain, strategy)), (own, mix(chain, strategy + 7))]
}

fn results(
    chamber: u32,
    work: &Work,
    before: Option<u64>,
    rows: Vec<(u8, u64)>,
    counts: bool,
    history: History,
) -> Results {
    Results {
        chamber,
        position: work.position,
        predecessor: work.committed,
        before,
        number: decode(&work.message.payload).0,
        stream: work.stream,
        take: work.take,
        stamp: work.stamp,
        rows,
        counts,
        history,
    }
}
