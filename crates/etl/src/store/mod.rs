//! The store: one SQLite file, one writer, any number of readers.
//!
//! A [`Writer`] holds a lock beside the file for as long as it lives, so that two processes never write at once; the
//! lock goes with the process, however that ends. A [`Reader`] needs no lock and sees the last commit.

mod graph;
mod migrate;
mod query;
mod rank;
mod read;
mod record;
mod resume;
mod search;
mod view;
mod write;

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

pub use graph::{End, Goal, PathStep, Paths, Stop};
pub use query::Tally;
pub use read::Reader;
pub(crate) use resume::Letter;
pub use search::{Query, parse_since};
pub use view::{
    Change, Checkpoint, DeadLetter, EventRow, Exported, ExportedLink, Hit, Holding, LinkView, MacroStats,
    ProviderStats, RecordView, RunRow, Step, Version,
};
pub use write::{Commit, Counts, Moved, Writer};

/// Why the store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else writes to the file.
    #[error(
        "{file} is being written by process {pid}; wait until it is done, or choose another file with --db"
    )]
    Locked {
        /// The file.
        file: PathBuf,
        /// Whose it is.
        pid: String,
    },
    /// The file comes from a newer Phalanx.
    #[error(
        "{file} has schema version {found}, this program knows versions up to {known}: use a newer phalanx"
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// There is nothing to read.
    #[error("{0} does not exist or is empty: `phalanx etl run` makes it, --db names another file")]
    Missing(PathBuf),
    /// The file system says no.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is something else.
    #[error("{0} is no store of phalanx etl: choose another file with --db")]
    Foreign(PathBuf),
    /// SQLite says no.
    #[error("the database fails")]
    Sqlite(#[from] rusqlite::Error),
}

/// Opens the file for writing, makes or migrates it, and locks it.
pub(crate) fn open(file: &Path) -> Result<(Connection, File), Error> {
    let lock = lock(file)?;
    let mut connection = Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    refuse_foreign(&connection, file)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // A killed process loses nothing committed; after a power cut the file is whole, at an earlier commit.
    connection.pragma_update(None, "synchronous", "normal")?;
    // A page that changes often is copied from the log into the file less often.
    connection.pragma_update(None, "wal_autocheckpoint", 16_000)?;
    connection.pragma_update(None, "cache_size", -32_000)?;
    connection.set_prepared_statement_cache_capacity(64);
    migrate::migrate(&mut connection, file, migrate::MIGRATIONS)?;
    Ok((connection, lock))
}

fn open_for_reading(file: &Path) -> Result<Connection, Error> {
    if !file.exists() {
        return Err(Error::Missing(file.to_owned()));
    }
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    refuse_foreign(&connection, file)?;
    match migrate::check(&connection, file, migrate::MIGRATIONS)? {
        // A writer that was killed before it made the tables leaves a file with nothing in it.
        0 => Err(Error::Missing(file.to_owned())),
        version if version < migrate::MIGRATIONS.len() => {
            drop(connection);
            drop(open(file)?);
            open_for_reading(file)
        }
        _ => {
            connection.pragma_update(None, "cache_size", -16_000)?;
            Ok(connection)
        }
    }
}

/// Somebody else's file is left alone: one that is no database, or whose tables are not ours.
fn refuse_foreign(connection: &Connection, file: &Path) -> Result<(), Error> {
    let sql =
        "SELECT count(*) > 0 AND NOT max(name = 'record_versions') FROM sqlite_schema WHERE type = 'table'";
    match connection.query_row(sql, [], |row| row.get::<_, Option<bool>>(0)) {
        Ok(Some(true)) => Err(Error::Foreign(file.to_owned())),
        Ok(_) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Err(Error::Foreign(file.to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

/// All rows of a query.
fn rows<T>(
    connection: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
    row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    Ok(connection.prepare_cached(sql)?.query_map(params, row)?.collect::<Result<_, _>>()?)
}

fn lock(file: &Path) -> Result<File, Error> {
    let mut path = file.as_os_str().to_owned();
    path.push("-lock");
    let path = PathBuf::from(path);
    let io = |error| Error::Io { file: path.clone(), error };
    let mut lock =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
    if lock.try_lock().is_err() {
        let mut pid = String::new();
        lock.read_to_string(&mut pid).map_err(io)?;
        return Err(Error::Locked { file: file.to_owned(), pid: pid.trim().to_owned() });
    }
    lock.set_len(0).map_err(io)?;
    lock.rewind().map_err(io)?;
    writeln!(lock, "{}", std::process::id()).map_err(io)?;
    Ok(lock)
}

pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
