//! What one run came to: the row that says so, its points, the alarms it raised or cleared.

use phalanx_cluster::backend::{self, Stores};
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;
use serde_json::{Value, json};
use thiserror::Error;

use crate::dead_letter;
use crate::judge::alarm::alarm_json;
use crate::record::{Alarm, Chamber, Context, Flags, Outcome, UChart};
use crate::store::{ChartStore, StoreError};

/// So many of the newest messages of a chamber are looked at for a run.
const NEWEST: usize = 1_000;
/// Points of one moment: more runs of one chamber do not end in one millisecond.
const AT_ONCE: usize = 64;

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The chamber.
    pub chamber: Chamber,
    /// What became of the message.
    pub row: Context,
    /// The points of the run, one for each chart.
    pub points: Vec<UChart>,
    /// The alarms that the run raised or cleared.
    pub alarms: Vec<Alarm>,
    /// Why it is a dead letter, if it is one.
    pub reason: Option<String>,
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The store did not answer or refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker did not answer.
    #[error(transparent)]
    Backend(#[from] backend::Error),
}

impl Report {
    /// What the run came to, once its message is committed; none before that, or if there is no such run among the newest
    /// of the chamber. `sequence` says which message of the run is meant, where it was sent more than once.
    pub async fn find(
        store: &dyn ChartStore,
        stores: &Stores,
        chamber: &Chamber,
        context: &str,
        sequence: Option<u64>,
    ) -> Result<Option<Self>, ReportError> {
        let Some(committed) = committed(stores, chamber).await? else { return Ok(None) };
        let mut rows = store.contexts(chamber, Some(committed), NEWEST).await?;
        rows.retain(|row| *row.context == *context);
        let is_meant =
            |row: &&Context| sequence.is_none_or(|sequence| row.position.sequence == Sequence(sequence));
        let Some(row) = rows.iter().find(is_meant).cloned() else { return Ok(None) };
        // One that was here before has left its points then.
        let first = rows.iter().find(|row| row.outcome == Outcome::Processed).unwrap_or(&row);
        let points = points(store, chamber, first).await?;
        let alarms = alarms(store, chamber, first).await?;
        let reason = match row.outcome {
            Outcome::Dead => dead_letter::reason(&*stores.dead_letters, chamber, row.position).await?,
            _ => None,
        };
        Ok(Some(Self { chamber: chamber.clone(), row, points, alarms, reason }))
    }

    /// As it is answered and printed.
    pub fn to_json(&self) -> Value {
        let points = self.points.iter().map(|point| {
            json!({
                "chart": &*point.indicator,
                "value": point.value,
                "limits": point.limits,
                "n": point.n,
                "flags": words(point),
            })
        });
        json!({
            "toolId": self.chamber.tool(),
            "chamberId": self.chamber.chamber(),
            "contextId": &*self.row.context,
            "timestamp": self.row.timestamp.to_string(),
            "strategy": &*self.row.strategy,
            "outcome": self.row.outcome.name(),
            "reason": self.reason,
            "points": points.collect::<Vec<_>>(),
            "alarms": self.alarms.iter().map(alarm_json).collect::<Vec<_>>(),
        })
    }
}

/// How far the chamber has come.
async fn committed(stores: &Stores, chamber: &Chamber) -> Result<Option<Position>, backend::Error> {
    Ok(stores.cursor(&chamber.to_string()).await?.map(|cursor| cursor.position))
}

async fn points(store: &dyn ChartStore, chamber: &Chamber, of: &Context) -> Result<Vec<UChart>, StoreError> {
    let mut points = Vec::new();
    if of.outcome != Outcome::Processed {
        return Ok(points);
    }
    let after = of.timestamp.checked_add(jiff::SignedDuration::from_millis(1)).ok();
    for indicator in store.indicators(chamber).await? {
        let rows = store.u_charts(chamber, &indicator, after, AT_ONCE).await?;
        let mine = |(point, position, take): (UChart, Position, u64)| {
            ((position, take) == (of.position, of.take)).then_some(point)
        };
        points.extend(rows.into_iter().find_map(mine));
    }
    Ok(points)
}

async fn alarms(store: &dyn ChartStore, chamber: &Chamber, of: &Context) -> Result<Vec<Alarm>, StoreError> {
    let page = store.alarms(Some(chamber), jiff::Timestamp::UNIX_EPOCH, None, NEWEST).await?;
    let by_this_run = |alarm: &Alarm| {
        let cleared = alarm.cleared.as_ref().is_some_and(|(context, _)| *context == of.context);
        cleared || alarm.context == of.context
    };
    Ok(page.alarms.into_iter().map(|(alarm, _)| alarm).filter(by_this_run).collect())
}

/// What there is to say of a point.
fn words(point: &UChart) -> Vec<&'static str> {
    let all = [
        (Flags::NO_VALUE, "no value"),
        (Flags::LEARNING, "learning"),
        (Flags::VIOLATION, "violation"),
        (Flags::BEGINS, "first point"),
    ];
    all.into_iter().filter(|(flag, _)| point.flags.has(*flag)).map(|(_, word)| word).collect()
}
