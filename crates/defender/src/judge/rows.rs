//! The rows that a message leaves behind, and what the rows before it say.

use std::sync::Arc;

use jiff::Timestamp;
use phalanx_cluster::core::Position;

use super::{ChartState, StateError, Verdict, unchanged};
use crate::record::{Chamber, Context, HISTORY, Mark, Outcome, Past, Results, StateRow};

/// What the row before a message says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Before {
    /// What the charts remember.
    pub state: ChartState,
    /// The runs whose points make the history, the newest first.
    pub history: Vec<Past>,
}

impl Before {
    /// Reads the row at the committed position; a chamber without one has nothing to remember.
    pub fn decode(row: Option<&StateRow>) -> Result<Self, StateError> {
        let Some(row) = row else { return Ok(Self::default()) };
        Ok(Self { state: ChartState::decode(&row.state)?, history: row.history.clone() })
    }
}

/// A message, as its rows name it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The chamber.
    pub chamber: Chamber,
    /// Who writes.
    pub mark: Mark,
    /// The message committed before it.
    pub predecessor: Option<Position>,
    /// Which log it comes from.
    pub stream: u64,
    /// The run or the command.
    pub context: Arc<str>,
    /// The notification's time.
    pub timestamp: Timestamp,
    /// The version of the strategy.
    pub strategy: Arc<str>,
}

impl Entry {
    /// The rows of a verdict. A run that was processed joins the history; nothing else does.
    pub fn results(&self, before: &Before, verdict: Verdict) -> Results {
        let mut history = Vec::with_capacity(HISTORY);
        if verdict.outcome == Outcome::Processed {
            let Position { generation, sequence } = self.mark.position;
            history.push(Past {
                context: self.context.clone(),
                generation,
                sequence: sequence.0,
                take: self.mark.take,
            });
        }
        history.extend(before.history.iter().cloned());
        history.truncate(HISTORY);
        Results {
            chamber: self.chamber.clone(),
            mark: self.mark,
            charts: verdict.charts,
            alarms: verdict.alarms,
            context: Context {
                position: self.mark.position,
                take: self.mark.take,
                context: self.context.clone(),
                timestamp: self.timestamp,
                strategy: self.strategy.clone(),
                outcome: verdict.outcome,
            },
            state: StateRow {
                mark: self.mark,
                predecessor: self.predecessor,
                context: self.context.clone(),
                stream: self.stream,
                history,
                state: verdict.state.encode(),
            },
        }
    }

    /// The rows of a dead letter: everything as it was, and that it is dead. Its id is not remembered, so it can be
    /// sent again.
    pub fn bury(&self, before: &Before) -> Results {
        self.results(before, unchanged(&self.chamber, &before.state, Outcome::Dead))
    }
}
