//! The chart store of one machine: an SQLite file.
//!
//! One thread writes ([`writer`]); readers have connections of their own and never wait for it.

mod expiry;
mod read;
mod schema;
mod write;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use phalanx_cluster::core::Position;
use rusqlite::{Connection, ErrorCode, params};

use self::write::Ready;
use self::writer::Writer;
use super::encoding::{Time, signed};
use super::{AlarmPage, ChartStore, StoreError, check, check_chunks};
use crate::record::{Acknowledgement, Alarm, Chamber, Context, Metadata, Results, StateRow, UChart};

/// How long SQLite waits for another process that has the file.
const PATIENCE: Duration = Duration::from_secs(2);

/// A chart store in an SQLite file. Clones share it.
///
/// What was acknowledged is on disk: it survives a crash of the process and of the machine (WAL, `synchronous = FULL`).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use phalanx_defender::record::Chamber;
/// use phalanx_defender::store::{ChartStore, Sqlite};
///
/// let folder = tempfile::tempdir()?;
/// let store = Sqlite::open(&folder.path().join("charts.db"))?;
/// let chamber = Chamber::new("etch-01", "A")?;
/// store.put_t_chart(&chamber, "run-1", &["traces".into()]).await?;
/// assert_eq!(store.t_chart(&chamber, "run-1").await?, Some(vec!["traces".into()]));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Sqlite {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    writer: Writer,
    /// Connections nobody reads from at the moment.
    readers: Mutex<Vec<Connection>>,
}

impl Sqlite {
    /// Opens the file, and makes it if it is absent. A file of another program, or of another version of the tables, is
    /// refused and left as it is.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let writer = Writer::start(schema::open(path)?)?;
        Ok(Self { inner: Arc::new(Inner { path: path.to_owned(), writer, readers: Mutex::default() }) })
    }

    /// Finishes what was asked for and lets go of the file; later writes fail.
    pub async fn close(&self) {
        let inner = self.inner.clone();
        let close = move || {
            // Whoever closes the file last folds its log into it, and readers may not.
            inner.idle().clear();
            inner.writer.close();
        };
        // It can only fail if the closing panics, and then nothing is open either.
        let _ = tokio::task::spawn_blocking(close).await;
    }

    async fn read<T, R>(&self, read: R) -> Result<T, StoreError>
    where
        T: Send + 'static,
        R: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let inner = self.inner.clone();
        let work = move || {
            let idle = inner.idle().pop();
            let db = match idle {
                Some(db) => db,
                None => schema::open_to_read(&inner.path).map_err(fault)?,
            };
            let result = read(&db);
            inner.idle().push(db);
            result
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|e| Err(StoreError::Unavailable(format!("a reader failed: {e}"))))
    }
}

impl Inner {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ChartStore for Sqlite {
    async fn ping(&self) -> Result<(), StoreError> {
        self.read(read::ping).await
    }

    async fn put_t_chart(
        &self,
        chamber: &Chamber,
        context: &str,
        chunks: &[Bytes],
    ) -> Result<(), StoreError> {
        check_chunks(chunks)?;
        let (chamber, context, chunks) = (chamber.clone(), context.to_owned(), chunks.to_vec());
        let stored_at = Time::from(Timestamp::now()).ms;
        let put = move |db: &Connection| {
            let (tool, chamber) = (chamber.tool(), chamber.chamber());
            let delete = "DELETE FROM t_charts WHERE tool_id = ? AND chamber_id = ? AND context_id = ?";
            db.prepare_cached(delete)?.execute(params![tool, chamber, context])?;
            let insert =
                "INSERT INTO t_charts (tool_id, chamber_id, context_id, chunk, chunks, stored_at, data)
                VALUES (?, ?, ?, ?, ?, ?, ?)";
            let count = i64::try_from(chunks.len()).unwrap_or(i64::MAX);
            for (index, data) in (0_i64..).zip(&chunks) {
                let values = params![tool, chamber, context, index, count, stored_at, &data[..]];
                db.prepare_cached(insert)?.execute(values)?;
            }
            Ok(())
        };
        self.inner.writer.run(put).await
    }

    async fn t_chart(&self, chamber: &Chamber, context: &str) -> Result<Option<Vec<Bytes>>, StoreError> {
        let (chamber, context) = (chamber.clone(), context.to_owned());
        self.read(move |db| read::t_chart(db, &chamber, &context)).await
    }

    async fn state_at(&self, chamber: &Chamber, position: Position) -> Result<Option<StateRow>, StoreError> {
        let chamber = chamber.clone();
        self.read(move |db| read::state_at(db, &chamber, position)).await
    }

    async fn newest_state(&self, chamber: &Chamber) -> Result<Option<StateRow>, StoreError> {
        let chamber = chamber.clone();
        self.read(move |db| read::newest_state(db, &chamber)).await
    }

    async fn u_charts(
        &self,
        chamber: &Chamber,
        indicator: &str,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<(UChart, Position, u64)>, StoreError> {
        let (chamber, indicator) = (chamber.clone(), indicator.to_owned());
        self.read(move |db| read::u_charts(db, &chamber, &indicator, before, limit)).await
    }

    async fn indicators(&self, chamber: &Chamber) -> Result<Vec<Arc<str>>, StoreError> {
        let chamber = chamber.clone();
        self.read(move |db| read::indicators(db, &chamber)).await
    }

    async fn contexts(
        &self,
        chamber: &Chamber,
        from: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Context>, StoreError> {
        let chamber = chamber.clone();
        self.read(move |db| read::contexts(db, &chamber, from, limit)).await
    }

    async fn write(&self, results: &Results) -> Result<(), StoreError> {
        check(results)?;
        let ready = Ready::new(results.clone())?;
        self.inner.writer.run(move |db| ready.write(db)).await
    }

    async fn alarms(
        &self,
        chamber: Option<&Chamber>,
        since: Timestamp,
        page: Option<&str>,
        limit: usize,
    ) -> Result<AlarmPage, StoreError> {
        let (chamber, page) = (chamber.cloned(), page.map(str::to_owned));
        self.read(move |db| read::alarms(db, chamber.as_ref(), since, page.as_deref(), limit)).await
    }

    async fn alarm(&self, id: &str) -> Result<Option<(Alarm, Option<Acknowledgement>)>, StoreError> {
        let id = id.to_owned();
        self.read(move |db| read::one_alarm(db, &id)).await
    }

    async fn acknowledge(&self, alarm: &str, what: &Acknowledgement) -> Result<(), StoreError> {
        let (alarm, what) = (alarm.to_owned(), what.clone());
        let note = move |db: &Connection| {
            let upsert =
                "INSERT INTO alarm_acknowledgements (alarm_id, acknowledged_by, acknowledged_at, comment)
                VALUES (?1, ?2, ?3, ?4)
                ON CONFLICT DO UPDATE SET acknowledged_by = ?2, acknowledged_at = ?3, comment = ?4
                WHERE ?3 >= acknowledged_at";
            let values = params![alarm, what.by, Time::from(what.at).ms, what.comment];
            db.prepare_cached(upsert)?.execute(values)?;
            Ok(())
        };
        self.inner.writer.run(note).await
    }

    async fn metadata(&self) -> Result<Vec<Metadata>, StoreError> {
        self.read(read::metadata).await
    }

    async fn put_metadata(&self, chambers: &[Metadata]) -> Result<(), StoreError> {
        let with_weight = |metadata: &Metadata| Ok((metadata.clone(), signed("a weight", metadata.weight)?));
        let chambers = chambers.iter().map(with_weight).collect::<Result<Vec<_>, StoreError>>()?;
        self.inner.writer.run(move |db| write::metadata(db, &chambers)).await
    }

    /// Applies the ages that Cassandra applies by itself.
    async fn expire(&self, now: Timestamp) -> Result<usize, StoreError> {
        let (sender, deleted) = tokio::sync::watch::channel(0);
        self.inner
            .writer
            .run(move |db| {
                sender.send_replace(expiry::step(db, now)?);
                Ok(())
            })
            .await?;
        Ok(*deleted.borrow())
    }
}

fn fault(error: rusqlite::Error) -> StoreError {
    fault_of(&error)
}

/// A file that is locked, full, damaged or not to be written is no fault of the row that was meant for it.
fn fault_of(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::ConstraintViolation
            | ErrorCode::TypeMismatch
            | ErrorCode::TooBig
            | ErrorCode::ParameterOutOfRange
            | ErrorCode::ApiMisuse,
        )
        | None => StoreError::Refused(error.to_string()),
        Some(_) => StoreError::Unavailable(error.to_string()),
    }
}
