//! The backend of one process: SQLite, in memory or in a file under the data folder.
//!
//! One thread owns the database. Whatever waits when it is free becomes one transaction, and nobody gets an answer before
//! that is on disk: durable, and fast under load because many share one sync.
//!
//! The broker's time here is the wall clock when the folder was opened, and from then on the monotonic clock: stepping
//! the wall clock expires nothing. It never falls behind what is stored.

mod engine;
mod kv;
mod lock;
mod log;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, params};

use self::engine::Engine;
use self::kv::Bucket;
use self::lock::FolderLock;
use self::log::EmbeddedLog;
use super::{Backend, BucketConfig, Error, Kv, Log, LogConfig, StoreKind, validate};

const FILE: &str = "coordination.db";

/// SQLite as a backend. Clones share one database.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use phalanx_cluster::backend::{Backend, BucketConfig, Embedded};
///
/// let folder = tempfile::tempdir()?;
/// let backend = Embedded::open(folder.path())?;
/// backend.bucket(&BucketConfig::new("notes")).await?.put("key", "value".into()).await?;
/// // One process at a time: the error names who has it.
/// assert!(Embedded::open(folder.path()).is_err());
/// backend.close().await;
/// assert!(Embedded::open(folder.path()).is_ok());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Embedded {
    engine: Arc<Engine>,
}

impl Embedded {
    /// A database that is gone when the process is.
    pub fn in_memory() -> Result<Self, Error> {
        let what = "opening a database in memory";
        let db = Connection::open_in_memory().map_err(|e| Error::failed(what, e))?;
        Self::start(what, db, None)
    }

    /// The database in a data folder, made if it is absent. The folder is locked until [`close`](Embedded::close) or the
    /// end of the process. Ids, heartbeats and the lease of an earlier process are forgotten; revisions keep growing. Leave
    /// records are heartbeats: that a worker left cleanly is stored in the cursors that it held.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let what = format!("opening the data folder {}", folder.display());
        fs::create_dir_all(folder).map_err(|e| Error::invalid(&what, e))?;
        let lock = FolderLock::take(folder)?;
        let db = Connection::open(folder.join(FILE)).map_err(|e| Error::invalid(&what, e))?;
        Self::start(&what, db, Some(lock))
    }

    fn start(what: &str, db: Connection, lock: Option<FolderLock>) -> Result<Self, Error> {
        Ok(Self { engine: Arc::new(Engine::start(what, db, lock)?) })
    }

    /// Finishes what was asked for, closes the database and unlocks the folder. Later calls fail.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// Removes a log and all its messages; opening it again makes a new one.
    pub async fn remove_log(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        let remove = move |session: &mut engine::Session| {
            let messages = "DELETE FROM messages WHERE log = (SELECT id FROM logs WHERE name = ?)";
            session.db.prepare_cached(messages)?.execute([&name])?;
            session.db.prepare_cached("DELETE FROM logs WHERE name = ?")?.execute([&name])?;
            Ok(())
        };
        self.engine.run("removing a log".to_owned(), remove).await
    }
}

#[async_trait]
impl Backend for Embedded {
    async fn bucket(&self, config: &BucketConfig) -> Result<Arc<dyn Kv>, Error> {
        validate::bucket(config)?;
        let (name, volatile) = (config.name.clone(), config.volatile);
        let description = config.description.clone();
        let open = move |session: &mut engine::Session| {
            let find = "SELECT id FROM buckets WHERE name = ?";
            if engine::find(&session.db, find, [&name], |_| Ok(()))?.is_none() {
                describe(&session.db, StoreKind::Bucket, &name, description.as_deref())?;
            }
            let upsert = "INSERT INTO buckets (name, revision, volatile) VALUES (?1, 0, ?2)
                          ON CONFLICT (name) DO UPDATE SET volatile = ?2 RETURNING id";
            Ok(session.db.prepare_cached(upsert)?.query_row(params![name, volatile], |row| row.get(0))?)
        };
        let id = self.engine.run(format!("opening the bucket {}", config.name), open).await?;
        Ok(Arc::new(Bucket::new(self.engine.clone(), id, config)))
    }

    async fn log(&self, config: &LogConfig) -> Result<Arc<dyn Log>, Error> {
        validate::log(config)?;
        let (name, description) = (config.name.clone(), config.description.clone());
        let open = move |session: &mut engine::Session| {
            if engine::find(&session.db, "SELECT id FROM logs WHERE name = ?", [&name], |_| Ok(()))?.is_none()
            {
                describe(&session.db, StoreKind::Log, &name, description.as_deref())?;
                let created = session.next_timestamp();
                let insert = "INSERT INTO logs (name, created, last, messages, bytes) VALUES (?, ?, 0, 0, 0)";
                session.db.prepare_cached(insert)?.execute(params![name, created])?;
            }
            Ok(())
        };
        self.engine.run(format!("opening the log {}", config.name), open).await?;
        Ok(Arc::new(EmbeddedLog::new(self.engine.clone(), config)))
    }

    async fn description(&self, kind: StoreKind, name: &str) -> Result<String, Error> {
        let what = format!("reading the description of {kind} {name}");
        let name = name.to_owned();
        let read = move |session: &mut engine::Session| {
            let find = "SELECT description FROM descriptions WHERE kind = ? AND name = ?";
            let found = engine::find(&session.db, find, params![kind.to_string(), name], |row| row.get(0))?;
            Ok(found.unwrap_or_default())
        };
        self.engine.run(what, read).await
    }

    async fn describe(&self, kind: StoreKind, name: &str, description: &str) -> Result<(), Error> {
        let what = format!("describing {kind} {name}");
        let (name, description) = (name.to_owned(), description.to_owned());
        let write =
            move |session: &mut engine::Session| Ok(describe(&session.db, kind, &name, Some(&description))?);
        self.engine.run(what, write).await
    }
}

/// Stores the description of a bucket or log; none removes it.
fn describe(db: &Connection, kind: StoreKind, name: &str, description: Option<&str>) -> rusqlite::Result<()> {
    let kind = kind.to_string();
    match description {
        Some(text) => {
            let replace = "INSERT OR REPLACE INTO descriptions (kind, name, description) VALUES (?, ?, ?)";
            db.prepare_cached(replace)?.execute(params![kind, name, text])?;
        }
        None => {
            db.prepare_cached("DELETE FROM descriptions WHERE kind = ? AND name = ?")?
                .execute(params![kind, name])?;
        }
    }
    Ok(())
}
