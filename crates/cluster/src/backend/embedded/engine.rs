//! The thread that owns the database, and its transactions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _};
use tokio::sync::{mpsc as bells, oneshot, watch};

use super::lock::FolderLock;
use crate::backend::Error;

/// Enough to share one sync among many, few enough to answer soon.
const BATCH_MAX: usize = 256;

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA busy_timeout = 1000;
    CREATE TABLE IF NOT EXISTS clock (one INTEGER PRIMARY KEY CHECK (one = 1), last INTEGER NOT NULL);
    INSERT OR IGNORE INTO clock VALUES (1, 0);
    CREATE TABLE IF NOT EXISTS buckets (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, volatile INTEGER NOT NULL);
    -- A value that is NULL is the mark of a deletion.
    CREATE TABLE IF NOT EXISTS entries (
        bucket INTEGER NOT NULL, revision INTEGER NOT NULL, key TEXT NOT NULL, stored_at INTEGER NOT NULL, value BLOB,
        UNIQUE (bucket, revision));
    CREATE INDEX IF NOT EXISTS entries_by_key ON entries (bucket, key, revision);
    CREATE INDEX IF NOT EXISTS entries_by_age ON entries (bucket, stored_at);
    CREATE TABLE IF NOT EXISTS logs (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created INTEGER NOT NULL, last INTEGER NOT NULL,
        messages INTEGER NOT NULL, bytes INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS messages (
        log INTEGER NOT NULL, sequence INTEGER NOT NULL, subject TEXT NOT NULL, stored_at INTEGER NOT NULL,
        message_id TEXT, payload BLOB NOT NULL,
        UNIQUE (log, sequence));
    CREATE INDEX IF NOT EXISTS messages_by_subject ON messages (log, subject, sequence);
    CREATE INDEX IF NOT EXISTS messages_by_age ON messages (log, stored_at);
    CREATE INDEX IF NOT EXISTS messages_by_id ON messages (log, message_id) WHERE message_id IS NOT NULL;
    CREATE TABLE IF NOT EXISTS descriptions (
        kind TEXT NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL, PRIMARY KEY (kind, name));
    DELETE FROM entries WHERE bucket IN (SELECT id FROM buckets WHERE volatile);
";
const FORMAT: i64 = 1;

/// Why a job did not do its work.
pub(super) enum JobError {
    /// The answer is no; everybody else's work stands.
    Rejected(Error),
    /// The database failed: the whole transaction is undone.
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for JobError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Error> for JobError {
    fn from(error: Error) -> Self {
        Self::Rejected(error)
    }
}

/// What a job works with.
pub(super) struct Session {
    pub(super) db: Connection,
    clock: Clock,
    changed: Vec<Change>,
    /// Why the transaction cannot go on: nothing is done in it any more.
    broken: Option<String>,
}

impl Session {
    /// The broker's time now, in microseconds.
    pub(super) fn now(&self) -> i64 {
        self.clock.now()
    }

    /// The broker's time for something that is stored now: above that of everything stored before.
    pub(super) fn next_timestamp(&mut self) -> i64 {
        self.clock.last = self.clock.now().max(self.clock.last + 1);
        self.clock.last
    }

    /// What is older than this has lived longer than `ttl`.
    pub(super) fn expired_before(&self, ttl: Duration) -> i64 {
        self.now().saturating_sub(i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX))
    }

    /// Somebody may wait for this; it is told when it is on disk.
    pub(super) fn changed(&mut self, change: Change) {
        self.changed.push(change);
    }
}

/// What others may be waiting for.
pub(super) enum Change {
    Bucket(i64),
    Subject { log: String, subject: String },
}

/// How the transaction of a job ended.
enum TransactionEnd {
    Committed,
    RolledBack(String),
    CommitFailed(String),
}

type ReplyFn = Box<dyn FnOnce(&TransactionEnd) + Send>;
type Job = Box<dyn FnOnce(&mut Session) -> ReplyFn + Send>;

enum EngineMessage {
    Work(Job),
    Stop(oneshot::Sender<()>),
}

/// The way to the database.
pub(super) struct Engine {
    commands: mpsc::Sender<EngineMessage>,
    pub(super) signals: Arc<Signals>,
    /// A stop was sent: whatever is sent after it is not carried out.
    stopping: AtomicBool,
}

impl Engine {
    pub(super) fn start(what: &str, db: Connection, lock: Option<FolderLock>) -> Result<Self, Error> {
        let clock = prepare(&db).map_err(|e| Error::invalid(what, e))?;
        let session = Session { db, clock, changed: Vec::new(), broken: None };
        let (commands, inbox) = mpsc::channel();
        let signals = Arc::new(Signals::default());
        let theirs = signals.clone();
        thread::Builder::new()
            .name("phalanx-embedded".to_owned())
            .spawn(move || {
                // Also if the thread panics: nobody shall wait for a database that is gone.
                let _end = CloseAtEnd(&theirs);
                serve(session, &inbox, &theirs, lock);
            })
            .map_err(|e| Error::failed(what, e))?;
        Ok(Self { commands, signals, stopping: AtomicBool::new(false) })
    }

    /// Runs `work` in a transaction and answers when it is on disk.
    pub(super) async fn run<T, W>(&self, what: String, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: FnOnce(&mut Session) -> Result<T, JobError> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let asked = what.clone();
        let job: Job = Box::new(move |session| {
            // A broken transaction is rolled back, and that is the answer.
            let result = match session.broken {
                Some(_) => None,
                None => match work(session) {
                    Ok(value) => Some(Ok(value)),
                    Err(JobError::Rejected(error)) => Some(Err(error)),
                    Err(JobError::Database(error)) => {
                        session.broken = Some(error.to_string());
                        None
                    }
                },
            };
            Box::new(move |end| {
                let answer = match (end, result) {
                    (TransactionEnd::Committed, Some(result)) => result,
                    (TransactionEnd::Committed, None) => Err(Error::failed(asked, "it was not tried")),
                    (TransactionEnd::RolledBack(reason), _) => Err(Error::failed(asked, reason)),
                    (TransactionEnd::CommitFailed(reason), _) => Err(Error::unknown(asked, reason)),
                };
                // Nobody listens any more if the caller gave up.
                let _ = sender.send(answer);
            })
        });
        if self.commands.send(EngineMessage::Work(job)).is_err() {
            return Err(Error::failed(what, "the data folder is closed"));
        }
        // Whatever is asked after the stop was asked for is thrown away untouched.
        let stopped = self.stopping.load(Ordering::SeqCst);
        answer.await.unwrap_or_else(|_| match stopped {
            true => Err(Error::failed(what, "the data folder is closed")),
            false => Err(Error::unknown(what, "the database thread ended")),
        })
    }

    pub(super) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(EngineMessage::Stop(done)).is_ok() {
            self.stopping.store(true, Ordering::SeqCst);
            // An error means that it was closed already.
            let _ = closed.await;
        }
    }
}

fn prepare(db: &Connection) -> Result<Clock, String> {
    let text = |e: rusqlite::Error| e.to_string();
    let format: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(text)?;
    if format > FORMAT {
        return Err(format!(
            "the database has format {format}, this program knows up to {FORMAT}: use a newer one"
        ));
    }
    db.execute_batch(SCHEMA).map_err(text)?;
    db.pragma_update(None, "user_version", FORMAT).map_err(text)?;
    db.set_prepared_statement_cache_capacity(64);
    let last = db.query_row("SELECT last FROM clock", [], |row| row.get(0)).map_err(text)?;
    Ok(Clock::start(last))
}

fn serve(
    mut session: Session,
    inbox: &mpsc::Receiver<EngineMessage>,
    signals: &Signals,
    lock: Option<FolderLock>,
) {
    let mut stop = None;
    while stop.is_none()
        && let Ok(first) = inbox.recv()
    {
        let mut jobs = Vec::new();
        let waiting = std::iter::once(first).chain(inbox.try_iter().take(BATCH_MAX - 1));
        for command in waiting {
            match command {
                EngineMessage::Work(job) => jobs.push(job),
                EngineMessage::Stop(done) => stop = Some(done),
            }
        }
        transaction(&mut session, jobs, signals);
    }
    drop(session);
    signals.close();
    drop(lock);
    if let Some(done) = stop {
        let _ = done.send(());
    }
}

fn transaction(session: &mut Session, jobs: Vec<Job>, signals: &Signals) {
    let before = session.clock.last;
    session.broken = session.db.execute_batch("BEGIN IMMEDIATE").err().map(|error| error.to_string());
    let answers: Vec<ReplyFn> = jobs.into_iter().map(|job| job(session)).collect();
    let end = match session.broken.take() {
        Some(reason) => {
            // Nothing to roll back if it could not even begin.
            let _ = session.db.execute_batch("ROLLBACK");
            TransactionEnd::RolledBack(reason)
        }
        None => commit(session, before),
    };
    let changed = std::mem::take(&mut session.changed);
    if matches!(end, TransactionEnd::Committed) {
        changed.iter().for_each(|change| signals.notify(change));
    }
    answers.into_iter().for_each(|answer| answer(&end));
}

fn commit(session: &Session, before: i64) -> TransactionEnd {
    let last = session.clock.last;
    if last != before
        && let Err(error) = session
            .db
            .prepare_cached("UPDATE clock SET last = ?")
            .and_then(|mut update| update.execute([last]))
    {
        let _ = session.db.execute_batch("ROLLBACK");
        return TransactionEnd::RolledBack(error.to_string());
    }
    match session.db.execute_batch("COMMIT") {
        Ok(()) => TransactionEnd::Committed,
        Err(error) => {
            // A failed sync may have reached the disk all the same.
            let _ = session.db.execute_batch("ROLLBACK");
            TransactionEnd::CommitFailed(error.to_string())
        }
    }
}

struct Clock {
    origin: Instant,
    /// The broker's time at the origin.
    offset: i64,
    /// The last time that was given to something stored.
    last: i64,
}

impl Clock {
    fn start(last: i64) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let offset = i64::try_from(wall).unwrap_or(i64::MAX / 2).max(last + 1);
        Self { origin: Instant::now(), offset, last }
    }

    fn now(&self) -> i64 {
        self.offset + i64::try_from(self.origin.elapsed().as_micros()).unwrap_or(0)
    }
}

/// Tells those who wait that something is on disk.
#[derive(Default)]
pub(super) struct Signals {
    waiting: Mutex<Subscribers>,
}

#[derive(Default)]
struct Subscribers {
    closed: bool,
    buckets: HashMap<i64, watch::Sender<()>>,
    subscriptions: HashMap<(String, String), Vec<bells::Sender<()>>>,
}

impl Signals {
    fn lock(&self) -> MutexGuard<'_, Subscribers> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes with every change of the bucket.
    pub(super) fn bucket(&self, id: i64) -> watch::Receiver<()> {
        let mut waiting = self.lock();
        if waiting.closed {
            return watch::channel(()).1;
        }
        waiting.buckets.entry(id).or_insert_with(|| watch::channel(()).0).subscribe()
    }

    /// Rings with every message of the subject.
    pub(super) fn add_subscription(&self, log: &str, subject: &str, bell: bells::Sender<()>) {
        let mut waiting = self.lock();
        if !waiting.closed {
            let bells = waiting.subscriptions.entry((log.to_owned(), subject.to_owned())).or_default();
            bells.retain(|bell| !bell.is_closed());
            bells.push(bell);
        }
    }

    fn notify(&self, change: &Change) {
        let mut waiting = self.lock();
        match change {
            Change::Bucket(id) => {
                if let Some(sender) = waiting.buckets.get(id) {
                    sender.send_replace(());
                }
            }
            Change::Subject { log, subject } => {
                let key = (log.clone(), subject.clone());
                if let Some(bells) = waiting.subscriptions.get_mut(&key) {
                    bells.retain(|bell| !bell.is_closed());
                    // Full: it is ringing already.
                    for bell in bells.iter() {
                        let _ = bell.try_send(());
                    }
                    if bells.is_empty() {
                        waiting.subscriptions.remove(&key);
                    }
                }
            }
        }
    }

    /// Whether nothing will ever change again.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn close(&self) {
        *self.lock() = Subscribers { closed: true, ..Subscribers::default() };
    }
}

struct CloseAtEnd<'a>(&'a Signals);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The one row that a query finds, if there is one.
pub(super) fn find<T>(
    db: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
    read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    db.prepare_cached(sql)?.query_row(params, read).optional()
}
