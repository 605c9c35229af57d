//! Rows as the driver writes and reads them.

use bytes::Bytes;
use phalanx_cluster::core::Position;
use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::value::{CqlDate, CqlTimestamp};
use scylla::{DeserializeRow, SerializeRow};

use crate::record::{
    Acknowledgement, Alarm, AlarmState, Chamber, Context, Flags, Limits, Mark, Metadata, Outcome, Severity,
    StateRow, UChart,
};
use crate::store::StoreError;
use crate::store::encoding::{self, Time, Word as _, damaged, pair, position, signed, small, unsigned};

type Result<T> = std::result::Result<T, StoreError>;

/// As many rows as one answer may have when each may be a few MiB.
pub(super) const CHUNKS_AT_ONCE: &str = "4";

pub(super) const U_CHART_COLUMNS: &str = "indicator, timestamp, context_id, timestamp_ns, value, center, lcl, ucl, sigma, n, flags, position, take, strategy";
pub(super) const STATE_COLUMNS: &str =
    "position, take, stamp, predecessor, context_id, stream, history, state";
pub(super) const ALARM_COLUMNS: &str = "tool_id, chamber_id, raised_at, alarm_id, raised_at_ns, indicator, rule, severity, value, \"limit\", context_id, state, cleared_by, cleared_at, cleared_at_ns, message, position, take";

/// Every row of an answer.
pub(super) fn all<R>(result: QueryResult) -> Result<Vec<R>>
where
    R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
{
    let rows = result.into_rows_result().map_err(|e| damaged("an answer", e))?;
    let rows = rows.rows::<R>().map_err(|e| damaged("an answer", e))?;
    rows.map(|row| row.map_err(|e| damaged("a row", e))).collect()
}

/// The numbers of a message, checked once.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub(super) position: (i64, i64),
    pub(super) take: i64,
    pub(super) stamp: i64,
    pub(super) written_at: i64,
}

impl Numbers {
    pub(super) fn of(mark: Mark) -> Result<Self> {
        Ok(Self {
            position: pair(mark.position)?,
            take: signed("a take", mark.take)?,
            stamp: signed("a stamp", mark.stamp)?,
            written_at: signed("a write time", mark.written_at())?,
        })
    }
}

#[derive(SerializeRow)]
pub(super) struct PutUChart<'a> {
    tool_id: &'a str,
    chamber_id: &'a str,
    indicator: &'a str,
    timestamp: CqlTimestamp,
    context_id: &'a str,
    timestamp_ns: i32,
    value: Option<f64>,
    center: Option<f64>,
    lcl: Option<f64>,
    ucl: Option<f64>,
    sigma: Option<f64>,
    n: i64,
    flags: i64,
    position: (i64, i64),
    take: i64,
    strategy: &'a str,
    written_at: i64,
}

impl<'a> PutUChart<'a> {
    pub(super) fn new(chamber: &'a Chamber, numbers: Numbers, chart: &'a UChart) -> Self {
        let time = Time::from(chart.timestamp);
        Self {
            tool_id: chamber.tool(),
            chamber_id: chamber.chamber(),
            indicator: &chart.indicator,
            timestamp: CqlTimestamp(time.ms),
            context_id: &chart.context,
            timestamp_ns: time.ns,
            value: chart.value,
            center: chart.limits.map(|l| l.center),
            lcl: chart.limits.and_then(|l| l.lcl),
            ucl: chart.limits.and_then(|l| l.ucl),
            sigma: chart.limits.and_then(|l| l.sigma),
            n: chart.n.into(),
            flags: chart.flags.0.into(),
            position: numbers.position,
            take: numbers.take,
            strategy: &chart.strategy,
            written_at: numbers.written_at,
        }
    }
}

#[derive(DeserializeRow)]
pub(super) struct UChartRow {
    indicator: String,
    timestamp: CqlTimestamp,
    context_id: String,
    timestamp_ns: i32,
    value: Option<f64>,
    center: Option<f64>,
    lcl: Option<f64>,
    ucl: Option<f64>,
    sigma: Option<f64>,
    n: i64,
    flags: i64,
    position: (i64, i64),
    take: i64,
    strategy: String,
}

impl UChartRow {
    pub(super) fn read(self) -> Result<(UChart, Position, u64)> {
        let Self { lcl, ucl, sigma, .. } = self;
        let chart = UChart {
            indicator: self.indicator.into(),
            timestamp: Time { ms: self.timestamp.0, ns: self.timestamp_ns }.read()?,
            context: self.context_id.into(),
            value: self.value,
            limits: self.center.map(|center| Limits { center, lcl, ucl, sigma }),
            n: small("n", self.n)?,
            flags: Flags(small("flags", self.flags)?),
            strategy: self.strategy.into(),
        };
        Ok((chart, position(self.position)?, unsigned("a take", self.take)?))
    }
}

#[derive(DeserializeRow)]
pub(super) struct ContextRow {
    position: (i64, i64),
    take: i64,
    context_id: String,
    timestamp: CqlTimestamp,
    timestamp_ns: i32,
    strategy: String,
    outcome: String,
}

impl ContextRow {
    pub(super) fn read(self) -> Result<Context> {
        Ok(Context {
            position: position(self.position)?,
            take: unsigned("a take", self.take)?,
            context: self.context_id.into(),
            timestamp: Time { ms: self.timestamp.0, ns: self.timestamp_ns }.read()?,
            strategy: self.strategy.into(),
            outcome: Outcome::read(&self.outcome)?,
        })
    }
}

#[derive(DeserializeRow)]
pub(super) struct StoredState {
    position: (i64, i64),
    take: i64,
    stamp: i64,
    predecessor: Option<(i64, i64)>,
    context_id: String,
    stream: i64,
    history: String,
    state: Vec<u8>,
}

impl StoredState {
    pub(super) fn read(self) -> Result<StateRow> {
        Ok(StateRow {
            mark: Mark {
                position: position(self.position)?,
                take: unsigned("a take", self.take)?,
                stamp: unsigned("a stamp", self.stamp)?,
            },
            predecessor: self.predecessor.map(position).transpose()?,
            context: self.context_id.into(),
            stream: unsigned("a stream", self.stream)?,
            history: encoding::read_history(&self.history)?,
            state: self.state,
        })
    }
}

#[derive(Clone, Copy, SerializeRow)]
pub(super) struct PutAlarm<'a> {
    tool_id: &'a str,
    chamber_id: &'a str,
    raised_at: CqlTimestamp,
    alarm_id: &'a str,
    raised_at_ns: i32,
    indicator: &'a str,
    rule: &'a str,
    severity: &'a str,
    value: Option<f64>,
    broken_limit: Option<f64>,
    context_id: &'a str,
    state: &'a str,
    cleared_by: Option<&'a str>,
    cleared_at: Option<CqlTimestamp>,
    cleared_at_ns: Option<i32>,
    message: &'a str,
    position: (i64, i64),
    take: i64,
    written_at: i64,
}

/// The same, for the table by days.
#[derive(SerializeRow)]
pub(super) struct PutAlarmOfDay<'a> {
    day: CqlDate,
    #[scylla(flatten)]
    alarm: PutAlarm<'a>,
}

impl<'a> PutAlarm<'a> {
    pub(super) fn new(numbers: Numbers, alarm: &'a Alarm) -> Self {
        let raised = Time::from(alarm.raised_at);
        let cleared = alarm.cleared.as_ref().map(|(by, at)| (&**by, Time::from(*at)));
        Self {
            tool_id: alarm.chamber.tool(),
            chamber_id: alarm.chamber.chamber(),
            raised_at: CqlTimestamp(raised.ms),
            alarm_id: &alarm.id,
            raised_at_ns: raised.ns,
            indicator: &alarm.indicator,
            rule: &alarm.rule,
            severity: alarm.severity.word(),
            value: alarm.value,
            broken_limit: alarm.limit,
            context_id: &alarm.context,
            state: alarm.state.word(),
            cleared_by: cleared.map(|(by, _)| by),
            cleared_at: cleared.map(|(_, at)| CqlTimestamp(at.ms)),
            cleared_at_ns: cleared.map(|(_, at)| at.ns),
            message: &alarm.message,
            position: numbers.position,
            take: numbers.take,
            written_at: numbers.written_at,
        }
    }

    /// Where it is found by its id: that, the chamber, and when it was raised.
    pub(super) fn by_id(&self) -> (&'a str, &'a str, &'a str, CqlTimestamp, i64) {
        (self.alarm_id, self.tool_id, self.chamber_id, self.raised_at, self.written_at)
    }

    pub(super) fn of_day(self) -> PutAlarmOfDay<'a> {
        PutAlarmOfDay { day: date(day(self.raised_at.0)), alarm: self }
    }
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The day since 1970 on which a millisecond lies.
pub(super) fn day(ms: i64) -> i64 {
    ms.div_euclid(DAY_MS)
}

/// Cassandra counts days from the middle of what it can hold.
pub(super) fn date(day: i64) -> CqlDate {
    CqlDate(u32::try_from(day + (1 << 31)).unwrap_or(0))
}

#[derive(DeserializeRow)]
pub(super) struct AlarmRow {
    tool_id: String,
    chamber_id: String,
    raised_at: CqlTimestamp,
    alarm_id: String,
    raised_at_ns: i32,
    indicator: String,
    rule: String,
    severity: String,
    value: Option<f64>,
    limit: Option<f64>,
    context_id: String,
    state: String,
    cleared_by: Option<String>,
    cleared_at: Option<CqlTimestamp>,
    cleared_at_ns: Option<i32>,
    message: String,
    pub(super) position: (i64, i64),
    pub(super) take: i64,
}

impl AlarmRow {
    pub(super) fn read(self) -> Result<Alarm> {
        let cleared = match (self.cleared_by, self.cleared_at) {
            (Some(by), Some(CqlTimestamp(ms))) => {
                Some((by.into(), Time { ms, ns: self.cleared_at_ns.unwrap_or(0) }.read()?))
            }
            _ => None,
        };
        Ok(Alarm {
            id: self.alarm_id.into(),
            chamber: encoding::chamber(&self.tool_id, &self.chamber_id)?,
            raised_at: Time { ms: self.raised_at.0, ns: self.raised_at_ns }.read()?,
            indicator: self.indicator.into(),
            rule: self.rule.into(),
            severity: Severity::read(&self.severity)?,
            value: self.value,
            limit: self.limit,
            context: self.context_id.into(),
            state: AlarmState::read(&self.state)?,
            cleared,
            message: self.message,
        })
    }
}

#[derive(DeserializeRow)]
pub(super) struct Said {
    acknowledged_by: String,
    acknowledged_at: CqlTimestamp,
    comment: String,
}

impl Said {
    pub(super) fn read(self) -> Result<Acknowledgement> {
        let at = Time { ms: self.acknowledged_at.0, ns: 0 }.read()?;
        Ok(Acknowledgement { by: self.acknowledged_by, at, comment: self.comment })
    }
}

#[derive(DeserializeRow)]
pub(super) struct MetadataRow {
    tool_id: String,
    chamber_id: String,
    svid_count: i64,
    collection_freq_hz: f64,
    context_duration_seconds: f64,
    weight: i64,
    last_updated: CqlTimestamp,
}

impl MetadataRow {
    pub(super) fn read(self) -> Result<Metadata> {
        Ok(Metadata {
            chamber: encoding::chamber(&self.tool_id, &self.chamber_id)?,
            svid_count: small("svid_count", self.svid_count)?,
            collection_freq_hz: self.collection_freq_hz,
            context_duration_seconds: self.context_duration_seconds,
            weight: unsigned("a weight", self.weight)?,
            last_updated: Time { ms: self.last_updated.0, ns: 0 }.read()?,
        })
    }
}

/// A part of the traces.
pub(super) fn part((chunk, chunks, data): (i32, i32, Vec<u8>)) -> (i64, i64, Bytes) {
    (chunk.into(), chunks.into(), data.into())
}
