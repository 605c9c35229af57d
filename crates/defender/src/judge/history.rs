//! The points that run rules look back upon.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;

use crate::record::{Flags, HISTORY, Past, UChart};

/// Points older than this before a run do not count. The store keeps points for 30 days: so none that counts can have
/// expired, and when a run is judged does not change how.
pub const OLDEST_DAYS: i64 = 29;

/// The last points of a chamber's charts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History(HashMap<Arc<str>, Vec<PastPoint>>);

/// A point of the past.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PastPoint {
    position: Position,
    timestamp: Timestamp,
    value: Option<f64>,
    learning: bool,
}

impl PastPoint {
    /// Its value, if it is one that was judged.
    pub(super) fn judged(self) -> Option<f64> {
        self.value.filter(|_| !self.learning)
    }
}

impl History {
    /// Puts points together, of any charts and in any order. Only those count that the state row lists: of each run the
    /// attempt whose rows count. What else a store or a cache has (of an attempt that was never committed, of a run
    /// that is not committed yet) is left out.
    ///
    /// ```
    /// use phalanx_defender::judge::History;
    /// assert_eq!(History::assemble([], &[]), History::default());
    /// ```
    pub fn assemble(rows: impl IntoIterator<Item = (UChart, Position, u64)>, past: &[Past]) -> Self {
        let mut listed: Vec<(Position, u64, &Arc<str>)> = past
            .iter()
            .take(HISTORY)
            .map(|one| {
                let position = Position { generation: one.generation, sequence: Sequence(one.sequence) };
                (position, one.take, &one.context)
            })
            .collect();
        listed.sort_unstable();
        let mut charts: HashMap<Arc<str>, Vec<PastPoint>> = HashMap::new();
        for (row, position, take) in rows {
            if listed.binary_search(&(position, take, &row.context)).is_err() {
                continue;
            }
            let point = PastPoint {
                position,
                timestamp: row.timestamp,
                value: row.value,
                learning: row.flags.has(Flags::LEARNING),
            };
            charts.entry(row.indicator).or_default().push(point);
        }
        for points in charts.values_mut() {
            points.sort_by_key(|point| point.position);
            // A row that two sources gave is one row.
            points.dedup_by_key(|point| point.position);
        }
        Self(charts)
    }

    /// The points of a chart since it began, the oldest first, none too old for a run of this time.
    pub(super) fn window(
        &self,
        chart: &str,
        since: Position,
        now: Timestamp,
    ) -> impl Iterator<Item = PastPoint> + use<'_> {
        let oldest = now.checked_sub(SignedDuration::from_hours(24 * OLDEST_DAYS)).unwrap_or(Timestamp::MIN);
        let points = self.0.get(chart).map_or(&[][..], Vec::as_slice);
        points.iter().copied().filter(move |point| point.position >= since && point.timestamp >= oldest)
    }
}
