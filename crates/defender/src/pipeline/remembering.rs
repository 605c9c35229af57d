//! What a chamber's charts remember, from the cache or the store.

use std::time::Instant;

use phalanx_cluster::core::ATTEMPTS;
use phalanx_cluster::{Delivery, Failure};

use super::Pipeline;
use crate::judge::History;
use crate::judge::Remark;
use crate::judge::rows::Before;
use crate::record::{Chamber, HISTORY, Past, StateRow, UChart};
use phalanx_cluster::core::Position;

/// Rows of attempts that do not count, and of runs that are not committed yet, may stand among those of the history.
const SLACK: usize = 16;

/// What a chamber's charts remember.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub(super) before: Before,
    pub(super) history: History,
}

impl Pipeline {
    /// As of exactly the committed position: what a predecessor wrote without committing it does not count.
    pub(super) async fn remembered(
        &self,
        delivery: &Delivery,
        chamber: &Chamber,
    ) -> Result<Remembered, Failure> {
        let cache = &self.parts.cache;
        if delivery.fresh {
            cache.forget(chamber);
        }
        let Some(committed) = delivery.committed else { return Ok(Remembered::default()) };
        if let Some(cached) = cache.get(Instant::now(), chamber, committed) {
            let before = self.decoded(chamber, Some(&cached.state));
            let points = before.state.indicators().flat_map(|name| cached.points(name));
            let history = History::assemble(placed(points, &before.history), &before.history);
            return Ok(Remembered { before, history });
        }
        let Some(row) = self.read(delivery, self.parts.store.state_at(chamber, committed)).await? else {
            return self.lost(delivery, chamber, committed);
        };
        let before = self.decoded(chamber, Some(&row));
        let mut rows = Vec::new();
        for indicator in before.state.indicators() {
            let limit = HISTORY + SLACK;
            let question = self.parts.store.u_charts(chamber, indicator, None, limit);
            rows.extend(self.read(delivery, question).await?);
        }
        let counts = |(row, position, take): &(UChart, Position, u64)| {
            before.history.iter().any(|past| {
                past.context == row.context
                    && past.take == *take
                    && (past.generation, past.sequence) == (position.generation, position.sequence)
            })
        };
        rows.retain(counts);
        let points: Vec<UChart> = rows.iter().map(|(row, ..)| row.clone()).collect();
        cache.fill(chamber, &row, &points);
        let history = History::assemble(rows, &before.history);
        Ok(Remembered { before, history })
    }

    /// The store does not have what was committed. It may not have it yet; if it never does, the charts begin anew, and
    /// that is said.
    fn lost(&self, delivery: &Delivery, chamber: &Chamber, at: Position) -> Result<Remembered, Failure> {
        let text =
            format!("the chart state of {chamber} at {}-{} is not in the store", at.generation, at.sequence);
        if delivery.attempt < ATTEMPTS {
            return Err(Failure::Retry(text));
        }
        self.begin_anew(chamber, &text);
        Ok(Remembered::default())
    }

    fn decoded(&self, chamber: &Chamber, row: Option<&StateRow>) -> Before {
        Before::decode(row).unwrap_or_else(|error| {
            self.begin_anew(chamber, &error.to_string());
            Before::default()
        })
    }

    fn begin_anew(&self, chamber: &Chamber, why: &str) {
        self.metrics.states_lost.inc();
        let remark = Remark { indicator: "*".into(), text: format!("its charts begin anew: {why}") };
        self.parts.observer.remark(chamber, &remark);
    }
}

/// Points of the cache are those that count: where they stand is in the list.
fn placed<'a>(
    points: impl Iterator<Item = UChart> + 'a,
    past: &'a [Past],
) -> impl Iterator<Item = (UChart, Position, u64)> + 'a {
    points.filter_map(|point| {
        let one = past.iter().find(|one| one.context == point.context)?;
        let position = Position { generation: one.generation, sequence: one.sequence };
        Some((point, position, one.take))
    })
}
