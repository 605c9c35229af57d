//! What a chamber's charts remember, from the cache or the store.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use phalanx_cluster::Failure;
use phalanx_cluster::core::types::Sequence;
use phalanx_cluster::core::{MAX_ATTEMPTS, Position};

use super::{Pipeline, Turn};
use crate::judge::rows::Before;
use crate::judge::{History, Remark, StateError};
use crate::record::{Chamber, HISTORY, Past, StateRow, UChart};
use crate::store::StoreError;

/// Rows of attempts that do not count, and of runs that are not committed yet, may stand among those of the history.
const SLACK: usize = 16;
/// How many charts' points are asked for at once.
const READS_AT_ONCE: usize = 8;

/// What a chamber's charts remember.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub(super) before: Before,
    pub(super) history: History,
}

impl Pipeline {
    /// As of exactly the committed position: what a predecessor wrote without committing it does not count.
    pub(super) async fn remembered(&self, delivery: &Turn, chamber: &Chamber) -> Result<Remembered, Failure> {
        let cache = &self.parts.cache;
        if delivery.ignore_cache {
            cache.forget(chamber);
        }
        let Some(committed) = delivery.committed else { return Ok(Remembered::default()) };
        if let Some(cached) = cache.get(Instant::now(), chamber, committed) {
            let before = self.decoded(chamber, &cached.state)?;
            let points = before.state.indicators().flat_map(|name| cached.points(name));
            let history = History::assemble(placed(points, &before.history), &before.history);
            return Ok(Remembered { before, history });
        }
        let Some(row) = self.read(delivery, self.parts.store.state_at(chamber, committed)).await? else {
            // The store may not have it yet. If it never does, the charts begin anew, and that is said.
            let text = gone(chamber, committed);
            if delivery.attempt < MAX_ATTEMPTS {
                return Err(Failure::Retry(text));
            }
            self.begin_anew(chamber, &text);
            return Ok(Remembered::default());
        };
        let before = self.decoded(chamber, &row)?;
        let indicators: Vec<Arc<str>> = before.state.indicators().cloned().collect();
        let rows = stream::iter(indicators)
            .map(|indicator| self.points(chamber, indicator, &before))
            .buffered(READS_AT_ONCE)
            .try_concat();
        let rows = self.read(delivery, rows).await?;
        let points: Vec<UChart> = rows.iter().map(|(row, ..)| row.clone()).collect();
        cache.fill(chamber, &row, &points);
        let history = History::assemble(rows, &before.history);
        Ok(Remembered { before, history })
    }

    /// What the charts remember, without the points: a dead letter changes neither.
    pub(super) async fn before(&self, delivery: &Turn, chamber: &Chamber) -> Result<Before, Failure> {
        let Some(committed) = delivery.committed else { return Ok(Before::default()) };
        match self.read(delivery, self.parts.store.state_at(chamber, committed)).await? {
            Some(row) => self.decoded(chamber, &row),
            None => {
                self.begin_anew(chamber, &gone(chamber, committed));
                Ok(Before::default())
            }
        }
    }

    /// The points of a chart that the state row lists, the newest first. They are asked for by time, and runs need not
    /// come in the order of their times: where one is missing that must be there, more are asked for.
    async fn points(
        &self,
        chamber: &Chamber,
        indicator: Arc<str>,
        before: &Before,
    ) -> Result<Vec<(UChart, Position, u64)>, StoreError> {
        let at = |past: &Past| Position { generation: past.generation, sequence: Sequence(past.sequence) };
        let since = before.state.since(&indicator).unwrap_or_default();
        let listed: HashMap<(&str, Position), u64> =
            before.history.iter().map(|past| ((&*past.context, at(past)), past.take)).collect();
        let wanted = listed.keys().filter(|(_, position)| *position >= since).count();
        let mut limit = HISTORY + SLACK;
        loop {
            let mut rows = self.parts.store.u_charts(chamber, &indicator, None, limit).await?;
            let is_all = rows.len() < limit;
            rows.retain(|(row, position, take)| listed.get(&(&*row.context, *position)) == Some(take));
            let found = rows.iter().filter(|(_, position, _)| *position >= since).count();
            if is_all || found >= wanted {
                rows.sort_by_key(|(_, position, _)| Reverse(*position));
                return Ok(rows);
            }
            limit *= 4;
        }
    }

    /// A state that is damaged begins anew, and that is said. One that a newer program wrote is left alone: the chamber
    /// waits for a worker that can read it.
    fn decoded(&self, chamber: &Chamber, row: &StateRow) -> Result<Before, Failure> {
        match Before::decode(Some(row)) {
            Ok(before) => Ok(before),
            Err(error @ StateError::Damaged(_)) => {
                self.begin_anew(chamber, &error.to_string());
                Ok(Before::default())
            }
            Err(error @ StateError::Version { .. }) => {
                let remark = Remark { indicator: "*".into(), text: format!("it waits: {error}") };
                self.report(chamber, &remark);
                Err(Failure::Unavailable)
            }
        }
    }

    fn begin_anew(&self, chamber: &Chamber, why: &str) {
        self.metrics.states_lost.inc();
        let remark = Remark { indicator: "*".into(), text: format!("its charts begin anew: {why}") };
        self.report(chamber, &remark);
    }
}

fn gone(chamber: &Chamber, at: Position) -> String {
    format!("the chart state of {chamber} at {}-{} is not in the store", at.generation, at.sequence)
}

/// Points of the cache are those that count: where they stand is in the list.
fn placed<'a>(
    points: impl Iterator<Item = UChart> + 'a,
    past: &'a [Past],
) -> impl Iterator<Item = (UChart, Position, u64)> + 'a {
    let listed: HashMap<&str, &Past> = past.iter().map(|one| (&*one.context, one)).collect();
    points.filter_map(move |point| {
        let one = listed.get(&*point.context)?;
        let position = Position { generation: one.generation, sequence: Sequence(one.sequence) };
        Some((point, position, one.take))
    })
}
