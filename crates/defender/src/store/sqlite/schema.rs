//! The tables, and whether a file has them.

use rusqlite::{Connection, OpenFlags};

use super::fault;
use crate::store::StoreError;

/// Says that a file is ours: "PhCh".
const APPLICATION: i64 = 0x5068_4368;

/// Grows with every change of the tables.
const VERSION: i64 = 1;

/// As in Cassandra (docs/storage.md), with what its server does by itself spelled out: write times, ages, what was pruned.
/// Numbers with a fraction have no declared type, or SQLite would make a plain zero of a negative one.
const TABLES: &str = "
    CREATE TABLE t_charts (
        tool_id TEXT NOT NULL, chamber_id TEXT NOT NULL, context_id TEXT NOT NULL, chunk INTEGER NOT NULL,
        chunks INTEGER NOT NULL, stored_at INTEGER NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (tool_id, chamber_id, context_id, chunk));
    CREATE INDEX t_charts_by_age ON t_charts (stored_at);

    CREATE TABLE u_charts (
        tool_id TEXT NOT NULL, chamber_id TEXT NOT NULL, indicator TEXT NOT NULL, timestamp INTEGER NOT NULL,
        context_id TEXT NOT NULL, timestamp_ns INTEGER NOT NULL, value, center, lcl, ucl, sigma,
        n INTEGER NOT NULL, flags INTEGER NOT NULL, generation INTEGER NOT NULL, sequence INTEGER NOT NULL,
        take INTEGER NOT NULL, strategy TEXT NOT NULL, written_at INTEGER NOT NULL,
        PRIMARY KEY (tool_id, chamber_id, indicator, timestamp DESC, context_id)) WITHOUT ROWID;
    CREATE INDEX u_charts_by_age ON u_charts (written_at);

    CREATE TABLE contexts (
        tool_id TEXT NOT NULL, chamber_id TEXT NOT NULL, generation INTEGER NOT NULL, sequence INTEGER NOT NULL,
        take INTEGER NOT NULL, context_id TEXT NOT NULL, timestamp INTEGER NOT NULL, timestamp_ns INTEGER NOT NULL,
        strategy TEXT NOT NULL, outcome TEXT NOT NULL, written_at INTEGER NOT NULL,
        PRIMARY KEY (tool_id, chamber_id, generation DESC, sequence DESC)) WITHOUT ROWID;
    CREATE INDEX contexts_by_age ON contexts (written_at);

    CREATE TABLE chart_state (
        tool_id TEXT NOT NULL, chamber_id TEXT NOT NULL, generation INTEGER NOT NULL, sequence INTEGER NOT NULL,
        take INTEGER NOT NULL, stamp INTEGER NOT NULL, predecessor_generation INTEGER, predecessor_sequence INTEGER,
        context_id TEXT NOT NULL, stream INTEGER NOT NULL, history TEXT NOT NULL, state BLOB NOT NULL,
        written_at INTEGER NOT NULL,
        PRIMARY KEY (tool_id, chamber_id, generation, sequence));
    CREATE TABLE chart_state_pruned (
        tool_id TEXT NOT NULL, chamber_id TEXT NOT NULL, generation INTEGER NOT NULL, sequence INTEGER NOT NULL,
        written_at INTEGER NOT NULL,
        PRIMARY KEY (tool_id, chamber_id)) WITHOUT ROWID;

    CREATE TABLE alarms (
        tool_id TEXT NOT NULL, chamber_id TEXT NOT NULL, raised_at INTEGER NOT NULL, alarm_id TEXT NOT NULL,
        raised_at_ns INTEGER NOT NULL, indicator TEXT NOT NULL, rule TEXT NOT NULL, severity TEXT NOT NULL,
        value, \"limit\", context_id TEXT NOT NULL, state TEXT NOT NULL, cleared_by TEXT, cleared_at INTEGER,
        cleared_at_ns INTEGER, message TEXT NOT NULL, generation INTEGER NOT NULL, sequence INTEGER NOT NULL,
        take INTEGER NOT NULL, written_at INTEGER NOT NULL,
        PRIMARY KEY (tool_id, chamber_id, raised_at DESC, alarm_id)) WITHOUT ROWID;
    CREATE INDEX alarms_by_day ON alarms (raised_at DESC, alarm_id);
    CREATE INDEX alarms_by_age ON alarms (written_at);

    CREATE TABLE alarm_acknowledgements (
        alarm_id TEXT PRIMARY KEY, acknowledged_by TEXT NOT NULL, acknowledged_at INTEGER NOT NULL,
        comment TEXT NOT NULL) WITHOUT ROWID;
    CREATE INDEX alarm_acknowledgements_by_age ON alarm_acknowledgements (acknowledged_at);

    CREATE TABLE chamber_metadata (
        tool_id TEXT NOT NULL, chamber_id TEXT NOT NULL, svid_count INTEGER NOT NULL, collection_freq_hz NOT NULL,
        context_duration_seconds NOT NULL, weight INTEGER NOT NULL, last_updated INTEGER NOT NULL,
        PRIMARY KEY (tool_id, chamber_id)) WITHOUT ROWID;
";

/// What makes questions faster and changes no table: files that were made without get it when they are opened.
const INDEXES: &str = "CREATE INDEX IF NOT EXISTS alarms_by_id ON alarms (alarm_id);";

/// Opens the file to write to, and makes the tables if it is empty.
pub(super) fn open(path: &std::path::Path) -> Result<Connection, StoreError> {
    let name = path.display();
    let here = |error: rusqlite::Error| match fault(error) {
        StoreError::Unavailable(reason) => StoreError::Unavailable(format!("{name}: {reason}")),
        StoreError::Refused(reason) => StoreError::Refused(format!("{name}: {reason}")),
    };
    // A file that cannot be opened at all, or only be read, is not going to change by waiting.
    let never = |error: rusqlite::Error| StoreError::Refused(format!("{name}: {error}"));
    let db = Connection::open(path).map_err(never)?;
    db.busy_timeout(super::PATIENCE).map_err(here)?;
    let pragma = |key: &str| db.pragma_query_value::<i64, _>(None, key, |row| row.get(0));
    let unreadable = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => {
            StoreError::Refused(format!("{name} is not an SQLite file: it is left as it is"))
        }
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => StoreError::Refused(format!(
            "{name} is damaged ({error}): put a copy of it back, or move it away to begin anew"
        )),
        _ => here(error),
    };
    let (application, version) =
        (pragma("application_id").map_err(unreadable)?, pragma("user_version").map_err(unreadable)?);
    let tables: i64 =
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(unreadable)?;
    if db.is_readonly("main").map_err(here)? {
        return Err(StoreError::Refused(format!("{name} cannot be written to")));
    }
    if tables > 0 && application != APPLICATION {
        return Err(StoreError::Refused(format!(
            "{name} is an SQLite file of another program: it is left as it is"
        )));
    }
    if tables > 0 && version != VERSION {
        return Err(StoreError::Refused(format!(
            "{name} has version {version} of the tables and this program knows version {VERSION}: \
             use the program that made it"
        )));
    }
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000;",
    )
    .map_err(here)?;
    if tables == 0 {
        let make = format!(
            "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
        );
        db.execute_batch(&make).map_err(here)?;
    }
    db.execute_batch(INDEXES).map_err(here)?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

/// Opens it to read from.
pub(super) fn open_to_read(path: &std::path::Path) -> Result<Connection, rusqlite::Error> {
    let db = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.busy_timeout(super::PATIENCE)?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}
