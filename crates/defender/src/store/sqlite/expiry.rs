//! What has become old leaves, a little at a time, so that nobody waits long for the writer.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, params};

use crate::store::encoding::microseconds;
use crate::store::{ALARMS_KEPT, T_CHARTS_KEPT, U_CHARTS_KEPT};

/// How many rows leave a table in one step. Traces are large: fewer of them.
const ROWS_MAX: i64 = 2_000;
const CHUNKS_MAX: i64 = 64;

struct Table {
    name: &'static str,
    key: &'static str,
    age: &'static str,
    /// Whether the column counts milliseconds, not microseconds.
    in_ms: bool,
    kept: Duration,
    rows: i64,
}

const TABLES: [Table; 5] = [
    Table {
        name: "u_charts",
        key: "tool_id, chamber_id, indicator, timestamp, context_id",
        age: "written_at",
        in_ms: false,
        kept: U_CHARTS_KEPT,
        rows: ROWS_MAX,
    },
    Table {
        name: "contexts",
        key: "tool_id, chamber_id, generation, sequence",
        age: "written_at",
        in_ms: false,
        kept: U_CHARTS_KEPT,
        rows: ROWS_MAX,
    },
    Table {
        name: "t_charts",
        key: "rowid",
        age: "stored_at",
        in_ms: true,
        kept: T_CHARTS_KEPT,
        rows: CHUNKS_MAX,
    },
    Table {
        name: "alarms",
        key: "tool_id, chamber_id, raised_at, alarm_id",
        age: "written_at",
        in_ms: false,
        kept: ALARMS_KEPT,
        rows: ROWS_MAX,
    },
    Table {
        name: "alarm_acknowledgements",
        key: "alarm_id",
        age: "acknowledged_at",
        in_ms: true,
        kept: ALARMS_KEPT,
        rows: ROWS_MAX,
    },
];

/// Deletes some of what is old at `now`, and says how many rows; 0 when nothing is left to do.
pub(super) fn step(db: &Connection, now: Timestamp) -> rusqlite::Result<usize> {
    TABLES.iter().try_fold(0, |sum, table| {
        let Table { name, key, age, rows, .. } = table;
        let kept = i64::try_from(table.kept.as_micros()).unwrap_or(i64::MAX);
        let limit = microseconds(now).saturating_sub(kept);
        let limit = if table.in_ms { limit.div_euclid(1000) } else { limit };
        let delete = format!(
            "DELETE FROM {name} WHERE ({key}) IN (SELECT {key} FROM {name} WHERE {age} < ?1 ORDER BY {age} LIMIT {rows})"
        );
        Ok(sum + db.prepare_cached(&delete)?.execute(params![limit])?)
    })
}
