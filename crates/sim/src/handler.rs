//! The handler of messages: reads the handler state, computes, and writes the results. A model of a real handler, with its
//! order and its rules.

use phalanx_cluster_core::{ProcessRequest, RequestId};

use crate::HashMap;
use crate::broker::decode;
use crate::store::{History, Results, Rows, mix};

/// The cached handler state of a partition, after the last message that the process committed.
#[derive(Clone, Debug)]
pub(crate) struct CachedState {
    number: u64,
    history: History,
}

/// A message that is being processed.
#[derive(Debug)]
pub(crate) struct ProcessingRun {
    pub(crate) request_id: RequestId,
    pub(crate) work: Box<ProcessRequest>,
    pub(crate) results: Option<Results>,
}

impl ProcessingRun {
    pub(crate) fn new(request_id: RequestId, work: Box<ProcessRequest>) -> Self {
        Self { request_id, work, results: None }
    }
}

/// The handler of one process.
#[derive(Debug, Default)]
pub(crate) struct Handler {
    pub(crate) runs: HashMap<u32, ProcessingRun>,
    memory: HashMap<u32, CachedState>,
    /// What is remembered if the message is committed.
    pending: HashMap<u32, CachedState>,
}

/// The way to find the handler state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// At exactly the committed position.
    Exact,
    /// The newest of any writer.
    Newest,
}

impl Handler {
    /// Forgets everything that runs.
    pub(crate) fn drop_all(&mut self) {
        self.runs.clear();
        self.pending.clear();
    }

    /// The message is committed: what was computed from it may be remembered.
    pub(crate) fn committed(&mut self, partition: u32) {
        if let Some(memory) = self.pending.remove(&partition) {
            self.memory.insert(partition, memory);
        }
    }

    /// What is remembered of a partition does not count any more.
    pub(crate) fn forget(&mut self, partition: u32) {
        self.memory.remove(&partition);
    }

    /// Computes the results of a message. Returns none if the required handler state is missing.
    pub(crate) fn compute(
        &mut self,
        partition: u32,
        work: &ProcessRequest,
        strategy: u64,
        lookup: Lookup,
        store: &Rows,
    ) -> Option<Results> {
        let (number, _) = decode(&work.message.payload);
        let base = match (self.memory.get(&partition), work.committed, lookup) {
            (Some(memory), ..) => Some(memory.clone()),
            (None, _, Lookup::Newest) => store
                .newest(partition)
                .map(|(_, state)| CachedState { number: state.number, history: state.history.clone() }),
            (None, None, Lookup::Exact) => None,
            (None, Some(position), Lookup::Exact) => {
                let state = store.state_at(partition, position)?;
                Some(CachedState { number: state.number, history: state.history.clone() })
            }
        };
        let before = base.as_ref().map(|base| base.number);
        let known = base.map(|base| base.history).unwrap_or_default();
        let counts = !known.knows(number);
        let history = if counts { known.with(number) } else { known };
        let rows = if counts { rows(history.chain, strategy) } else { Vec::new() };
        self.pending.insert(partition, CachedState { number, history: history.clone() });
        Some(results(partition, work, before, rows, counts, history))
    }

    /// Returns the results of a dead letter: only the unchanged handler state at its position.
    pub(crate) fn dead_letter_results(
        partition: u32,
        work: &ProcessRequest,
        store: &Rows,
    ) -> Option<Results> {
        let state = match work.committed {
            Some(position) => Some(store.state_at(partition, position)?),
            None => None,
        };
        let before = state.map(|state| state.number);
        let history = state.map(|state| state.history.clone()).unwrap_or_default();
        Some(results(partition, work, before, Vec::new(), false, history))
    }
}

/// One indicator is written by every strategy, another by the odd ones, a third by the even ones.
fn rows(chain: u64, strategy: u64) -> Vec<(u8, u64)> {
    let own = if strategy.is_multiple_of(2) { 1 } else { 2 };
    vec![(0, mix(chain, strategy)), (own, mix(chain, strategy + 7))]
}

fn results(
    partition: u32,
    work: &ProcessRequest,
    before: Option<u64>,
    rows: Vec<(u8, u64)>,
    counts: bool,
    history: History,
) -> Results {
    Results {
        partition,
        position: work.position,
        predecessor: work.committed,
        before,
        number: decode(&work.message.payload).0,
        log_id: work.log_id,
        fencing_token: work.fencing_token,
        write_timestamp: work.write_timestamp,
        rows,
        counts,
        history,
    }
}
