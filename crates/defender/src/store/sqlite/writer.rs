//! The thread that writes. Whatever waits when it is free becomes one transaction, and nobody is answered before that is
//! on disk: durable, and fast under load because many share one sync.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{fault, fault_of};
use crate::store::StoreError;

/// Enough to share one sync among many, few enough to answer soon.
const BATCH_MAX: usize = 128;

/// May be tried again: alone, if it stood in a transaction that failed.
type Work = Box<dyn FnMut(&Connection) -> rusqlite::Result<()> + Send>;

struct Job {
    work: Work,
    answer: oneshot::Sender<Result<(), StoreError>>,
}

pub(super) struct Writer {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(db: Connection) -> Result<Self, StoreError> {
        let (jobs, inbox) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("phalanx-charts".to_owned())
            .spawn(move || serve(&db, &inbox))
            .map_err(|e| StoreError::Unavailable(e.to_string()))?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    /// Answers when it is on disk.
    pub(super) async fn run(
        &self,
        work: impl FnMut(&Connection) -> rusqlite::Result<()> + Send + 'static,
    ) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        let closed = || StoreError::Unavailable("it is closed".to_owned());
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)?;
        jobs.send(Job { work: Box::new(work), answer }).map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Finishes what was asked for; later calls fail.
    pub(super) fn close(&self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic there was told to everybody who waited.
            let _ = thread.join();
        }
    }
}

/// Whoever opens the file next finds it closed.
impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn serve(db: &Connection, inbox: &mpsc::Receiver<Job>) {
    while let Ok(first) = inbox.recv() {
        let mut jobs: Vec<Job> = std::iter::once(first).chain(inbox.try_iter().take(BATCH_MAX - 1)).collect();
        let together = transaction(db, &mut jobs);
        let alone = jobs.len() == 1;
        match together {
            Ok(()) => jobs.into_iter().for_each(|job| answer(job, Ok(()))),
            // What no row is to blame for is no better one by one.
            Err(error) if alone || matches!(fault_of(&error), StoreError::Unavailable(_)) => {
                jobs.into_iter().for_each(|job| answer(job, Err(fault_of(&error))))
            }
            // One of them is to blame: each by itself, so that it harms nobody else.
            Err(_) => {
                for mut job in jobs {
                    let result = transaction(db, std::slice::from_mut(&mut job)).map_err(fault);
                    answer(job, result);
                }
            }
        }
    }
}

fn transaction(db: &Connection, jobs: &mut [Job]) -> rusqlite::Result<()> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    let done = jobs.iter_mut().try_for_each(|job| (job.work)(db)).and_then(|()| db.execute_batch("COMMIT"));
    if done.is_err() {
        // Where SQLite has rolled back by itself there is nothing left to do.
        let _ = db.execute_batch("ROLLBACK");
    }
    done
}

fn answer(job: Job, result: Result<(), StoreError>) {
    // Nobody listens any more if the caller gave up.
    let _ = job.answer.send(result);
}
