//! The one file that a node remembers by, and the one thread that writes it.
//!
//! Everything that waits when a write begins is written together and reaches the disk with one flush. After a write that
//! failed nothing is written any more: what is in the file and what is believed to be could differ.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::{fs, io, thread};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::oneshot;

/// Log entries by their index.
pub(crate) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
/// Everything else by its name.
pub(crate) const FACTS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("facts");
const FILE: &str = "election.redb";
/// The whole log is kept in memory besides: the file is read at the start alone.
const CACHE: usize = 4 << 20;

/// The folder cannot be used.
#[derive(Debug, Error)]
pub enum Error {
    /// It cannot be made.
    #[error("the data folder {} cannot be made: {source}; name another with --data-dir or make it writable", .folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("another agent uses the data folder {}: stop it, or name another folder with --data-dir", .0.display())]
    InUse(PathBuf),
    /// It cannot be opened or written.
    #[error("{} cannot be {action}: {reason}; see that the disk has room and the folder is writable", .file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why not.
        reason: String,
    },
    /// What stands in the file makes no sense.
    #[error("{} is damaged: {reason}; empty the folder and let the node join again with --join", .file.display())]
    Damaged {
        /// Which.
        file: PathBuf,
        /// What was found.
        reason: String,
    },
}

type Write = Box<dyn FnOnce(&WriteTransaction) -> Result<(), redb::Error> + Send>;
type Done = Box<dyn FnOnce(Result<(), io::Error>) + Send>;

/// The file. Clones are the same file.
#[derive(Clone)]
pub(crate) struct Disk {
    file: PathBuf,
    jobs: Sender<(Write, Done)>,
    /// The error that ended the writer.
    failure: Arc<OnceLock<String>>,
}

/// What was in the file when it was opened.
pub(crate) struct Found {
    database: Arc<Database>,
    file: PathBuf,
}

impl Disk {
    /// Opens the file in that folder; both are made where they are not there.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Found), Error> {
        fs::create_dir_all(folder).map_err(|source| Error::Folder { folder: folder.to_owned(), source })?;
        let file = folder.join(FILE);
        let database =
            Database::builder().set_cache_size(CACHE).create(&file).map_err(|error| match error {
                redb::DatabaseError::DatabaseAlreadyOpen => Error::InUse(folder.to_owned()),
                error => Error::File { file: file.clone(), action: "opened", reason: error.to_string() },
            })?;
        let tables = database.begin_write().map_err(redb::Error::from).and_then(|writing| {
            writing.open_table(LOG)?;
            writing.open_table(FACTS)?;
            Ok(writing.commit()?)
        });
        tables.map_err(|error| Error::File {
            file: file.clone(),
            action: "written",
            reason: error.to_string(),
        })?;
        let database = Arc::new(database);
        let (jobs, inbox) = channel();
        let failure = Arc::new(OnceLock::new());
        let (writer, name, failed) = (database.clone(), file.clone(), failure.clone());
        thread::Builder::new()
            .name("election-disk".to_owned())
            .spawn(move || write_all(&writer, &name, &inbox, &failed))
            .map_err(|error| Error::File {
                file: file.clone(),
                action: "written",
                reason: error.to_string(),
            })?;
        Ok((Self { file: file.clone(), jobs, failure }, Found { database, file }))
    }

    /// Writes, and calls `done` when it is on the disk. Writes happen in the order of these calls.
    pub(crate) fn write(
        &self,
        write: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error> + Send + 'static,
        done: impl FnOnce(Result<(), io::Error>) + Send + 'static,
    ) {
        if let Err(refused) = self.jobs.send((Box::new(write), Box::new(done))) {
            let (_, done) = refused.0;
            let reason = self.failure.get().cloned();
            let ended = || format!("{} cannot be written: its writer has ended", self.file.display());
            done(Err(io::Error::other(reason.unwrap_or_else(ended))));
        }
    }

    /// Writes, and waits until it is on the disk.
    pub(crate) async fn written(
        &self,
        write: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error> + Send + 'static,
    ) -> Result<(), io::Error> {
        let (told, done) = oneshot::channel();
        self.write(write, move |result| drop(told.send(result)));
        done.await.unwrap_or_else(|_| Err(io::Error::other("the writer is gone")))
    }

    /// Remembers a fact, and waits until it is on the disk.
    pub(crate) async fn remember(&self, name: &'static str, fact: &impl Serialize) -> Result<(), io::Error> {
        let bytes = serde_json::to_vec(fact)?;
        self.written(move |writing| {
            writing.open_table(FACTS)?.insert(name, bytes.as_slice())?;
            Ok(())
        })
        .await
    }
}

impl Found {
    /// A fact that was remembered.
    pub(crate) fn fact<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let reading = self.database.begin_read().map_err(|error| self.unreadable(error))?;
        let facts = reading.open_table(FACTS).map_err(|error| self.unreadable(error))?;
        let bytes = facts.get(name).map_err(|error| self.unreadable(error))?;
        bytes.map(|bytes| self.parsed(name, bytes.value())).transpose()
    }

    /// The log, in its order.
    pub(crate) fn log<T: DeserializeOwned>(&self) -> Result<Vec<(u64, T)>, Error> {
        let reading = self.database.begin_read().map_err(|error| self.unreadable(error))?;
        let log = reading.open_table(LOG).map_err(|error| self.unreadable(error))?;
        let mut entries = Vec::new();
        for entry in log.iter().map_err(|error| self.unreadable(error))? {
            let (index, bytes) = entry.map_err(|error| self.unreadable(error))?;
            entries.push((index.value(), self.parsed("log entry", bytes.value())?));
        }
        Ok(entries)
    }

    fn parsed<T: DeserializeOwned>(&self, what: &str, bytes: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(bytes)
            .map_err(|error| Error::Damaged { file: self.file.clone(), reason: format!("{what}: {error}") })
    }

    fn unreadable(&self, error: impl std::fmt::Display) -> Error {
        Error::File { file: self.file.clone(), action: "read", reason: error.to_string() }
    }
}

fn write_all(database: &Database, file: &Path, inbox: &Receiver<(Write, Done)>, failure: &OnceLock<String>) {
    while let Ok(first) = inbox.recv() {
        let (writes, dones): (Vec<Write>, Vec<Done>) = std::iter::once(first).chain(inbox.try_iter()).unzip();
        let written = database.begin_write().map_err(redb::Error::from).and_then(|writing| {
            writes.into_iter().try_for_each(|write| write(&writing))?;
            Ok(writing.commit()?)
        });
        if let Err(error) = written {
            // Later writes fail with the same reason.
            let reason = failure.get_or_init(|| format!("{} cannot be written: {error}", file.display()));
            dones.into_iter().for_each(|done| done(Err(io::Error::other(reason.clone()))));
            return;
        }
        dones.into_iter().for_each(|done| done(Ok(())));
    }
}
