//! A bucket in SQLite.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::{Row, params};
use tokio::sync::mpsc;

use super::engine::{Change, Engine, JobError, Session, find};
use crate::backend::{BucketConfig, Entry, Error, Kv, Watch, WatchEvent, validate};
use crate::core::Condition;
use crate::core::types::Revision;

/// A watch reads so many changes at once: each may be as large as a value can be.
const PAGE: i64 = 16;
/// A watch that the database does not serve asks again so soon.
const RETRY_DELAY: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(super) struct Bucket {
    engine: Arc<Engine>,
    id: i64,
    name: Arc<str>,
    history: u8,
    ttl: Option<Duration>,
}

impl Bucket {
    pub(super) fn new(engine: Arc<Engine>, id: i64, config: &BucketConfig) -> Self {
        Self { engine, id, name: config.name.as_str().into(), history: config.history, ttl: config.ttl }
    }

    async fn run<T: Send + 'static>(
        &self,
        what: String,
        work: impl FnOnce(&Self, &mut Session) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, Error> {
        let bucket = self.clone();
        self.engine
            .run(what, move |session| {
                bucket.expire(session)?;
                work(&bucket, session)
            })
            .await
    }

    fn expire(&self, session: &Session) -> rusqlite::Result<()> {
        if let Some(ttl) = self.ttl {
            let sql = "DELETE FROM entries WHERE bucket = ? AND stored_at <= ?";
            session.db.prepare_cached(sql)?.execute([self.id, session.expired_before(ttl)])?;
        }
        Ok(())
    }

    /// The newest row of a key, also where it marks a deletion.
    fn newest(&self, session: &Session, key: &str) -> rusqlite::Result<Option<Stored>> {
        let sql = "SELECT key, value, revision, stored_at FROM entries WHERE bucket = ? AND key = ?
                   ORDER BY revision DESC LIMIT 1";
        find(&session.db, sql, params![self.id, key], Stored::read)
    }

    /// The revision of a key that has a value; 0 for none.
    fn revision(&self, session: &Session, key: &str) -> rusqlite::Result<Revision> {
        let newest = self.newest(session, key)?;
        Ok(newest.filter(|row| row.value.is_some()).map_or(Revision(0), |row| row.revision))
    }

    fn store(&self, session: &mut Session, key: &str, value: Option<&[u8]>) -> rusqlite::Result<Revision> {
        let sql = "UPDATE buckets SET revision = revision + 1 WHERE id = ? RETURNING revision";
        let revision: i64 = session.db.prepare_cached(sql)?.query_row([self.id], |row| row.get(0))?;
        let stored_at = session.next_timestamp();
        let sql = "INSERT INTO entries (bucket, revision, key, stored_at, value) VALUES (?, ?, ?, ?, ?)";
        session.db.prepare_cached(sql)?.execute(params![self.id, revision, key, stored_at, value])?;
        let sql = "DELETE FROM entries WHERE bucket = ?1 AND key = ?2 AND revision <= (
                       SELECT revision FROM entries WHERE bucket = ?1 AND key = ?2
                       ORDER BY revision DESC LIMIT 1 OFFSET ?3)";
        session.db.prepare_cached(sql)?.execute(params![self.id, key, self.history])?;
        session.changed(Change::Bucket(self.id));
        Ok(Revision(revision.cast_unsigned()))
    }

    /// What was stored in `(after, up_to]`, in order: each change that is still there, or only the newest of each key.
    fn changes(
        &self,
        session: &Session,
        after: Revision,
        up_to: Revision,
        newest_only: bool,
    ) -> rusqlite::Result<Vec<Stored>> {
        let sql = "SELECT key, value, revision, stored_at FROM entries AS e
                   WHERE bucket = ?1 AND revision > ?2 AND revision <= ?3 AND (NOT ?4 OR revision =
                       (SELECT max(revision) FROM entries WHERE bucket = ?1 AND key = e.key))
                   ORDER BY revision LIMIT ?5";
        let (after, up_to) = (after.0.cast_signed(), up_to.0.cast_signed());
        let mut select = session.db.prepare_cached(sql)?;
        let rows = select.query_map(params![self.id, after, up_to, newest_only, PAGE], Stored::read)?;
        rows.collect()
    }

    /// Asks for what a watch needs until there is an answer; none when the folder is closed.
    async fn retry_until_closed<T: Send + 'static>(
        &self,
        work: impl Fn(&Self, &mut Session) -> Result<T, JobError> + Clone + Send + 'static,
    ) -> Option<T> {
        loop {
            match self.run(format!("watch of {}", self.name), work.clone()).await {
                Ok(answer) => return Some(answer),
                Err(_) if self.engine.signals.is_closed() => return None,
                Err(_) => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
    }

    async fn page(&self, after: Revision, up_to: Revision, newest_only: bool) -> Option<Vec<Stored>> {
        self.retry_until_closed(move |bucket, session| {
            Ok(bucket.changes(session, after, up_to, newest_only)?)
        })
        .await
    }

    async fn last_revision(&self) -> Option<Revision> {
        self.retry_until_closed(|bucket, session| {
            let sql = "SELECT revision FROM buckets WHERE id = ?";
            let last: i64 = session.db.prepare_cached(sql)?.query_row([bucket.id], |row| row.get(0))?;
            Ok(Revision(last.cast_unsigned()))
        })
        .await
    }

    /// Tells everything there is, then every change, until nobody listens or the folder is closed.
    async fn stream_changes(self, after: Revision, events: &mpsc::Sender<WatchEvent>) -> Option<()> {
        let mut news = self.engine.signals.bucket(self.id);
        let from_the_start = after == Revision(0);
        let mut told = after;
        let begin = self.last_revision().await?;
        loop {
            let page = self.page(told, begin, from_the_start).await?;
            let Some(last) = page.last() else { break };
            told = last.revision;
            for row in page.into_iter().filter(|row| row.value.is_some() || !from_the_start) {
                events.send(row.event()).await.ok()?;
            }
        }
        told = told.max(begin);
        events.send(WatchEvent::Current).await.ok()?;
        loop {
            let page = self.page(told, Revision(i64::MAX.cast_unsigned()), false).await?;
            if page.is_empty() {
                tokio::select! {
                    biased;
                    () = events.closed() => return None,
                    changed = news.changed() => changed.ok()?,
                }
            }
            for row in page {
                told = row.revision;
                events.send(row.event()).await.ok()?;
            }
        }
    }
}

#[async_trait]
impl Kv for Bucket {
    async fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        validate::key(key)?;
        let asked = key.to_owned();
        self.run(format!("get of {key}"), move |bucket, session| {
            Ok(bucket.newest(session, &asked)?.and_then(Stored::entry))
        })
        .await
    }

    async fn write(&self, key: &str, value: Bytes, condition: Condition) -> Result<Revision, Error> {
        let what = format!("write of {key} in {}", self.name);
        validate::key(key)?;
        validate::value(&what, &value)?;
        let key = key.to_owned();
        self.run(what.clone(), move |bucket, session| {
            let wanted = match condition {
                Condition::None => None,
                Condition::Absent => Some(Revision(0)),
                Condition::Revision(revision) => Some(revision),
            };
            let found = bucket.revision(session, &key)?;
            if wanted.is_some_and(|wanted| wanted != found) {
                return Err(Error::conflict(what, Some(found)).into());
            }
            Ok(bucket.store(session, &key, Some(&value))?)
        })
        .await
    }

    async fn delete(&self, key: &str, revision: Revision) -> Result<(), Error> {
        validate::key(key)?;
        let what = format!("delete of {key} in {}", self.name);
        let key = key.to_owned();
        self.run(what.clone(), move |bucket, session| {
            let found = bucket.revision(session, &key)?;
            if found != revision || found == Revision(0) {
                return Err(Error::conflict(what, Some(found)).into());
            }
            bucket.store(session, &key, None)?;
            Ok(())
        })
        .await
    }

    async fn keys(&self) -> Result<BTreeSet<String>, Error> {
        self.run(format!("keys of {}", self.name), |bucket, session| {
            let sql = "SELECT key FROM entries AS e WHERE bucket = ?1 AND value IS NOT NULL AND revision =
                           (SELECT max(revision) FROM entries WHERE bucket = ?1 AND key = e.key)";
            let mut select = session.db.prepare_cached(sql)?;
            let keys = select.query_map([bucket.id], |row| row.get(0))?;
            Ok(keys.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    async fn watch_after(&self, revision: Revision) -> Result<Watch, Error> {
        let (events, watch) = Watch::new();
        let bucket = self.clone();
        tokio::spawn(async move { bucket.stream_changes(revision, &events).await });
        Ok(watch)
    }
}

struct Stored {
    key: String,
    /// None for a deletion.
    value: Option<Vec<u8>>,
    revision: Revision,
    stored_at: u64,
}

impl Stored {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            key: row.get(0)?,
            value: row.get(1)?,
            revision: Revision(row.get::<_, i64>(2)?.cast_unsigned()),
            stored_at: row.get::<_, i64>(3)?.cast_unsigned(),
        })
    }

    fn entry(self) -> Option<Entry> {
        let Self { key, value, revision, stored_at } = self;
        Some(Entry { key, value: value?.into(), revision, stored_at })
    }

    fn event(self) -> WatchEvent {
        let Self { key, value, revision, stored_at } = self;
        match value {
            Some(value) => WatchEvent::Put(Entry { key, value: value.into(), revision, stored_at }),
            None => WatchEvent::Delete { key, revision },
        }
    }
}
