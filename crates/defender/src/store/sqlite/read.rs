//! Rows out.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use phalanx_cluster::core::Position;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::fault;
use crate::record::{
    Acknowledgement, Alarm, AlarmState, Chamber, Context, Flags, Limits, Mark, Metadata, Outcome, Severity,
    StateRow, UChart,
};
use crate::store::encoding::{
    self, After, Time, Word as _, damaged, newest_pair, pair, position, small, unsigned,
};
use crate::store::{AlarmPage, StoreError, complete, seen};

type Result<T> = std::result::Result<T, StoreError>;

/// A column by its name.
fn get<T: FromSql>(row: &Row<'_>, column: &str) -> Result<T> {
    row.get(column).map_err(|e| damaged(column, e))
}

fn text(row: &Row<'_>, column: &str) -> Result<Arc<str>> {
    Ok(get::<String>(row, column)?.into())
}

fn time(row: &Row<'_>, ms: &str, ns: &str) -> Result<Timestamp> {
    Time { ms: get(row, ms)?, ns: get(row, ns)? }.read()
}

fn place(row: &Row<'_>) -> Result<Position> {
    position((get(row, "generation")?, get(row, "sequence")?))
}

fn take(row: &Row<'_>) -> Result<u64> {
    unsigned("a take", get(row, "take")?)
}

/// Every row that a query finds.
fn all<T>(
    db: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut statement = db.prepare_cached(sql).map_err(fault)?;
    let mut rows = statement.query(params).map_err(fault)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(fault)? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// As many rows as a caller asked for, as SQLite counts them.
fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn t_chart(db: &Connection, chamber: &Chamber, context: &str) -> Result<Option<Vec<Bytes>>> {
    let sql = "SELECT chunk, chunks, data FROM t_charts
        WHERE tool_id = ? AND chamber_id = ? AND context_id = ? ORDER BY chunk";
    let parts = all(db, sql, params![chamber.tool(), chamber.chamber(), context], |row| {
        Ok((get(row, "chunk")?, get(row, "chunks")?, Bytes::from(get::<Vec<u8>>(row, "data")?)))
    })?;
    Ok(complete(parts))
}

fn state(row: &Row<'_>) -> Result<StateRow> {
    let predecessor = match (get(row, "predecessor_generation")?, get(row, "predecessor_sequence")?) {
        (Some(generation), Some(sequence)) => Some(position((generation, sequence))?),
        _ => None,
    };
    Ok(StateRow {
        mark: Mark {
            position: place(row)?,
            take: take(row)?,
            stamp: unsigned("a stamp", get(row, "stamp")?)?,
        },
        predecessor,
        context: text(row, "context_id")?,
        stream: unsigned("a stream", get(row, "stream")?)?,
        history: encoding::read_history(&get::<String>(row, "history")?)?,
        state: get(row, "state")?,
    })
}

pub(super) fn state_at(db: &Connection, chamber: &Chamber, at: Position) -> Result<Option<StateRow>> {
    let (generation, sequence) = pair(at)?;
    let sql =
        "SELECT * FROM chart_state WHERE tool_id = ? AND chamber_id = ? AND generation = ? AND sequence = ?";
    let params = params![chamber.tool(), chamber.chamber(), generation, sequence];
    Ok(all(db, sql, params, state)?.pop())
}

pub(super) fn newest_state(db: &Connection, chamber: &Chamber) -> Result<Option<StateRow>> {
    let sql = "SELECT * FROM chart_state WHERE tool_id = ? AND chamber_id = ?
        ORDER BY generation DESC, sequence DESC LIMIT 1";
    Ok(all(db, sql, params![chamber.tool(), chamber.chamber()], state)?.pop())
}

pub(super) fn u_charts(
    db: &Connection,
    chamber: &Chamber,
    indicator: &str,
    before: Option<Timestamp>,
    limit: usize,
) -> Result<Vec<(UChart, Position, u64)>> {
    let sql =
        "SELECT * FROM u_charts WHERE tool_id = ? AND chamber_id = ? AND indicator = ? AND timestamp < ?
        ORDER BY timestamp DESC, context_id LIMIT ?";
    let before = before.map_or(i64::MAX, |before| Time::from(before).ms);
    all(db, sql, params![chamber.tool(), chamber.chamber(), indicator, before, rows(limit)], |row| {
        let limits = match get(row, "center")? {
            Some(center) => Some(Limits {
                center,
                lcl: get(row, "lcl")?,
                ucl: get(row, "ucl")?,
                sigma: get(row, "sigma")?,
            }),
            None => None,
        };
        let chart = UChart {
            indicator: text(row, "indicator")?,
            timestamp: time(row, "timestamp", "timestamp_ns")?,
            context: text(row, "context_id")?,
            value: get(row, "value")?,
            limits,
            n: small("n", get(row, "n")?)?,
            flags: Flags(small("flags", get(row, "flags")?)?),
            strategy: text(row, "strategy")?,
        };
        Ok((chart, place(row)?, take(row)?))
    })
}

pub(super) fn indicators(db: &Connection, chamber: &Chamber) -> Result<Vec<Arc<str>>> {
    // From one name to the next, instead of over every point.
    let sql = "WITH RECURSIVE names (name) AS (
            SELECT (SELECT min(indicator) FROM u_charts WHERE tool_id = ?1 AND chamber_id = ?2)
            UNION ALL
            SELECT (SELECT min(indicator) FROM u_charts WHERE tool_id = ?1 AND chamber_id = ?2 AND indicator > name)
            FROM names WHERE name IS NOT NULL)
        SELECT name FROM names WHERE name IS NOT NULL";
    all(db, sql, params![chamber.tool(), chamber.chamber()], |row| text(row, "name"))
}

pub(super) fn contexts(
    db: &Connection,
    chamber: &Chamber,
    from: Option<Position>,
    limit: usize,
) -> Result<Vec<Context>> {
    let sql =
        "SELECT * FROM contexts WHERE tool_id = ? AND chamber_id = ? AND (generation, sequence) <= (?, ?)
        ORDER BY generation DESC, sequence DESC LIMIT ?";
    let (generation, sequence) = newest_pair(from)?;
    let values = params![chamber.tool(), chamber.chamber(), generation, sequence, rows(limit)];
    all(db, sql, values, |row| {
        Ok(Context {
            position: place(row)?,
            take: take(row)?,
            context: text(row, "context_id")?,
            timestamp: time(row, "timestamp", "timestamp_ns")?,
            strategy: text(row, "strategy")?,
            outcome: Outcome::read(&get::<String>(row, "outcome")?)?,
        })
    })
}

pub(super) fn alarms(
    db: &Connection,
    chamber: Option<&Chamber>,
    since: Timestamp,
    page: Option<&str>,
    limit: usize,
) -> Result<AlarmPage> {
    // A page of nothing would go on for ever.
    let limit = limit.max(1);
    let after = page.map(After::read).transpose()?;
    let (ms, id) = after.map_or((i64::MAX, Arc::from("")), |after| (after.raised_ms, after.id));
    let sql = |from: &str, of: &str| {
        let found = selected(
            from,
            &format!(
                "{of} alarm.raised_at >= ?1 AND alarm.raised_at <= ?2 AND (alarm.raised_at < ?2 OR alarm.alarm_id > ?3)"
            ),
        );
        format!("{found} ORDER BY alarm.raised_at DESC, alarm.alarm_id LIMIT ?4")
    };
    let (since, most) = (Time::from(since).ms, rows(limit.saturating_add(1)));
    let mut alarms = match chamber {
        Some(chamber) => {
            let sql = sql("alarms AS alarm", "alarm.tool_id = ?5 AND alarm.chamber_id = ?6 AND");
            all(db, &sql, params![since, ms, &*id, most, chamber.tool(), chamber.chamber()], alarm)?
        }
        None => {
            let sql = sql("alarms AS alarm INDEXED BY alarms_by_day", "");
            all(db, &sql, params![since, ms, &*id, most], alarm)?
        }
    };
    let more = alarms.len() > limit;
    alarms.truncate(limit);
    let last = alarms.last().filter(|_| more);
    let next = last
        .map(|(alarm, _)| After { raised_ms: Time::from(alarm.raised_at).ms, id: alarm.id.clone() }.token());
    Ok(AlarmPage { alarms, next })
}

/// Alarms with what people said of them. One whose message was done by a later attempt, which did not write it, never was.
fn selected(from: &str, which: &str) -> String {
    format!(
        "SELECT alarm.*, said.acknowledged_by, said.acknowledged_at, said.comment
        FROM {from} LEFT JOIN alarm_acknowledgements AS said ON said.alarm_id = alarm.alarm_id
        WHERE {which}
            AND NOT EXISTS (SELECT 1 FROM contexts WHERE contexts.tool_id = alarm.tool_id
                AND contexts.chamber_id = alarm.chamber_id AND contexts.generation = alarm.generation
                AND contexts.sequence = alarm.sequence AND contexts.take > alarm.take)"
    )
}

pub(super) fn one_alarm(db: &Connection, id: &str) -> Result<Option<(Alarm, Option<Acknowledgement>)>> {
    Ok(all(db, &selected("alarms AS alarm", "alarm.alarm_id = ?1"), params![id], alarm)?.pop())
}

fn alarm(row: &Row<'_>) -> Result<(Alarm, Option<Acknowledgement>)> {
    let cleared = match (get::<Option<String>>(row, "cleared_by")?, get(row, "cleared_at")?) {
        (Some(by), Some(ms)) => {
            let ns = get::<Option<i32>>(row, "cleared_at_ns")?.unwrap_or(0);
            Some((by.into(), Time { ms, ns }.read()?))
        }
        _ => None,
    };
    let alarm = Alarm {
        id: text(row, "alarm_id")?,
        chamber: encoding::chamber(&get::<String>(row, "tool_id")?, &get::<String>(row, "chamber_id")?)?,
        raised_at: time(row, "raised_at", "raised_at_ns")?,
        indicator: text(row, "indicator")?,
        rule: text(row, "rule")?,
        severity: Severity::read(&get::<String>(row, "severity")?)?,
        value: get(row, "value")?,
        limit: get(row, "limit")?,
        context: text(row, "context_id")?,
        state: AlarmState::read(&get::<String>(row, "state")?)?,
        cleared,
        message: get(row, "message")?,
    };
    let said = match (get::<Option<String>>(row, "acknowledged_by")?, get(row, "acknowledged_at")?) {
        (Some(by), Some(ms)) => {
            Some(Acknowledgement { by, at: Time { ms, ns: 0 }.read()?, comment: get(row, "comment")? })
        }
        _ => None,
    };
    Ok(seen(alarm, said))
}

pub(super) fn metadata(db: &Connection) -> Result<Vec<Metadata>> {
    all(db, "SELECT * FROM chamber_metadata ORDER BY tool_id, chamber_id", [], |row| {
        Ok(Metadata {
            chamber: encoding::chamber(&get::<String>(row, "tool_id")?, &get::<String>(row, "chamber_id")?)?,
            svid_count: small("svid_count", get(row, "svid_count")?)?,
            collection_freq_hz: get(row, "collection_freq_hz")?,
            context_duration_seconds: get(row, "context_duration_seconds")?,
            weight: unsigned("a weight", get(row, "weight")?)?,
            last_updated: Time { ms: get(row, "last_updated")?, ns: 0 }.read()?,
        })
    })
}

/// Whether the file answers at all.
pub(super) fn ping(db: &Connection) -> Result<()> {
    let found: rusqlite::Result<Option<i64>> =
        db.query_row("SELECT 1 FROM sqlite_schema LIMIT 1", [], |row| row.get(0)).optional();
    found.map(|_| ()).map_err(fault)
}
