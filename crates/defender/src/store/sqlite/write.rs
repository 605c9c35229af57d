//! Rows in: each replaces what is there unless that was written later.

use rusqlite::{Connection, params};

use crate::record::{Alarm, Metadata, Results, UChart};
use crate::store::encoding::{self, Time, Word as _, pair, signed};
use crate::store::{StoreError, prune_below};

/// The numbers of a message, checked once.
#[derive(Clone, Copy)]
struct Numbers {
    position: (i64, i64),
    take: i64,
    stamp: i64,
    written_at: i64,
}

/// Everything of a message, checked and ready to be written, as often as it takes.
pub(super) struct Ready {
    results: Results,
    numbers: Numbers,
    predecessor: Option<(i64, i64)>,
    prune_below: Option<(i64, i64)>,
    stream: i64,
    history: String,
}

impl Ready {
    pub(super) fn new(results: Results) -> Result<Self, StoreError> {
        let mark = results.mark;
        let numbers = Numbers {
            position: pair(mark.position)?,
            take: signed("a take", mark.take)?,
            stamp: signed("a stamp", mark.stamp)?,
            written_at: signed("a write time", mark.written_at())?,
        };
        Ok(Self {
            numbers,
            predecessor: results.state.predecessor.map(pair).transpose()?,
            prune_below: prune_below(&results.state).map(pair).transpose()?,
            stream: signed("a stream", results.state.stream)?,
            history: encoding::history(&results.state.history),
            results,
        })
    }

    pub(super) fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        for chart in &self.results.charts {
            self.u_chart(db, chart)?;
        }
        for alarm in &self.results.alarms {
            self.alarm(db, alarm)?;
        }
        self.state(db)?;
        self.context(db)
    }

    fn names(&self) -> (&str, &str) {
        (self.results.chamber.tool(), self.results.chamber.chamber())
    }

    fn u_chart(&self, db: &Connection, chart: &UChart) -> rusqlite::Result<()> {
        let ((tool, chamber), numbers, time) = (self.names(), self.numbers, Time::from(chart.timestamp));
        let upsert = "INSERT INTO u_charts (tool_id, chamber_id, indicator, timestamp, context_id, timestamp_ns, value, center,
                lcl, ucl, sigma, n, flags, generation, sequence, take, strategy, written_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)
            ON CONFLICT DO UPDATE SET timestamp_ns = ?6, value = ?7, center = ?8, lcl = ?9, ucl = ?10, sigma = ?11,
                n = ?12, flags = ?13, generation = ?14, sequence = ?15, take = ?16, strategy = ?17, written_at = ?18
            WHERE ?18 >= written_at";
        db.prepare_cached(upsert)?.execute(params![
            tool,
            chamber,
            &*chart.indicator,
            time.ms,
            &*chart.context,
            time.ns,
            chart.value,
            chart.limits.map(|l| l.center),
            chart.limits.and_then(|l| l.lcl),
            chart.limits.and_then(|l| l.ucl),
            chart.limits.and_then(|l| l.sigma),
            chart.n,
            chart.flags.0,
            numbers.position.0,
            numbers.position.1,
            numbers.take,
            &*chart.strategy,
            numbers.written_at,
        ])?;
        Ok(())
    }

    fn alarm(&self, db: &Connection, alarm: &Alarm) -> rusqlite::Result<()> {
        let ((tool, chamber), numbers, raised) = (self.names(), self.numbers, Time::from(alarm.raised_at));
        let cleared = alarm.cleared.as_ref().map(|(context, at)| (&**context, Time::from(*at)));
        let upsert = "INSERT INTO alarms (tool_id, chamber_id, raised_at, alarm_id, raised_at_ns, indicator, rule, severity, value,
                \"limit\", context_id, state, cleared_by, cleared_at, cleared_at_ns, message, generation, sequence, take,
                written_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
            ON CONFLICT DO UPDATE SET raised_at_ns = ?5, indicator = ?6, rule = ?7, severity = ?8, value = ?9,
                \"limit\" = ?10, context_id = ?11, state = ?12, cleared_by = ?13, cleared_at = ?14, cleared_at_ns = ?15,
                message = ?16, generation = ?17, sequence = ?18, take = ?19, written_at = ?20
            WHERE ?20 >= written_at";
        db.prepare_cached(upsert)?.execute(params![
            tool,
            chamber,
            raised.ms,
            &*alarm.id,
            raised.ns,
            &*alarm.indicator,
            &*alarm.rule,
            alarm.severity.word(),
            alarm.value,
            alarm.limit,
            &*alarm.context,
            alarm.state.word(),
            cleared.map(|(context, _)| context),
            cleared.map(|(_, at)| at.ms),
            cleared.map(|(_, at)| at.ns),
            alarm.message,
            numbers.position.0,
            numbers.position.1,
            numbers.take,
            numbers.written_at,
        ])?;
        Ok(())
    }

    fn state(&self, db: &Connection) -> rusqlite::Result<()> {
        let ((tool, chamber), numbers, state) = (self.names(), self.numbers, &self.results.state);
        // What a later message has pruned stays pruned.
        let upsert = "INSERT INTO chart_state (tool_id, chamber_id, generation, sequence, take, stamp, predecessor_generation,
                predecessor_sequence, context_id, stream, history, state, written_at)
            SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13
            WHERE NOT EXISTS (SELECT 1 FROM chart_state_pruned AS pruned WHERE pruned.tool_id = ?1 AND pruned.chamber_id = ?2
                AND (?3, ?4) < (pruned.generation, pruned.sequence) AND ?13 <= pruned.written_at)
            ON CONFLICT DO UPDATE SET take = ?5, stamp = ?6, predecessor_generation = ?7, predecessor_sequence = ?8,
                context_id = ?9, stream = ?10, history = ?11, state = ?12, written_at = ?13
            WHERE ?13 >= written_at";
        db.prepare_cached(upsert)?.execute(params![
            tool,
            chamber,
            numbers.position.0,
            numbers.position.1,
            numbers.take,
            numbers.stamp,
            self.predecessor.map(|p| p.0),
            self.predecessor.map(|p| p.1),
            &*state.context,
            self.stream,
            self.history,
            state.state,
            numbers.written_at,
        ])?;
        let Some(below) = self.prune_below else { return Ok(()) };
        let delete = "DELETE FROM chart_state WHERE tool_id = ?1 AND chamber_id = ?2
            AND (generation, sequence) < (?3, ?4) AND written_at <= ?5";
        db.prepare_cached(delete)?.execute(params![tool, chamber, below.0, below.1, numbers.written_at])?;
        let note = "INSERT INTO chart_state_pruned (tool_id, chamber_id, generation, sequence, written_at)
            VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT DO UPDATE SET generation = ?3, sequence = ?4, written_at = ?5 WHERE ?5 >= written_at";
        db.prepare_cached(note)?.execute(params![tool, chamber, below.0, below.1, numbers.written_at])?;
        Ok(())
    }

    fn context(&self, db: &Connection) -> rusqlite::Result<()> {
        let ((tool, chamber), numbers, context) = (self.names(), self.numbers, &self.results.context);
        let time = Time::from(context.timestamp);
        let upsert = "INSERT INTO contexts (tool_id, chamber_id, generation, sequence, take, context_id, timestamp, timestamp_ns,
                strategy, outcome, written_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
            ON CONFLICT DO UPDATE SET take = ?5, context_id = ?6, timestamp = ?7, timestamp_ns = ?8, strategy = ?9,
                outcome = ?10, written_at = ?11
            WHERE ?11 >= written_at";
        db.prepare_cached(upsert)?.execute(params![
            tool,
            chamber,
            numbers.position.0,
            numbers.position.1,
            numbers.take,
            &*context.context,
            time.ms,
            time.ns,
            &*context.strategy,
            context.outcome.word(),
            numbers.written_at,
        ])?;
        Ok(())
    }
}

pub(super) fn metadata(db: &Connection, chambers: &[(Metadata, i64)]) -> rusqlite::Result<()> {
    let replace =
        "INSERT OR REPLACE INTO chamber_metadata (tool_id, chamber_id, svid_count, collection_freq_hz,
            context_duration_seconds, weight, last_updated)
        VALUES (?, ?, ?, ?, ?, ?, ?)";
    for (metadata, weight) in chambers {
        db.prepare_cached(replace)?.execute(params![
            metadata.chamber.tool(),
            metadata.chamber.chamber(),
            metadata.svid_count,
            metadata.collection_freq_hz,
            metadata.context_duration_seconds,
            weight,
            Time::from(metadata.last_updated).ms,
        ])?;
    }
    Ok(())
}
