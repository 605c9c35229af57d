//! A log in SQLite.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::{Row, params};

use super::engine::{Change, Engine, JobError, Session, find};
use crate::backend::{
    AppendCondition, Appended, Error, Log, LogConfig, LogInfo, Message, WakeUpSubscription, validate,
};
use crate::core::types::Revision;

const COLUMNS: &str = "SELECT subject, sequence, payload, stored_at FROM messages";

#[derive(Clone)]
pub(super) struct EmbeddedLog {
    engine: Arc<Engine>,
    config: Arc<LogConfig>,
}

/// A log as it stands in the database.
struct LogHeader {
    id: i64,
    created: i64,
    last: i64,
    messages: i64,
    bytes: i64,
}

impl EmbeddedLog {
    pub(super) fn new(engine: Arc<Engine>, config: &LogConfig) -> Self {
        Self { engine, config: Arc::new(config.clone()) }
    }

    /// Runs `work` on the log of this name as it is now: it may have been removed and made anew.
    async fn run<T: Send + 'static>(
        &self,
        what: String,
        work: impl FnOnce(&LogConfig, LogHeader, &mut Session) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, Error> {
        let config = self.config.clone();
        self.engine
            .run(what.clone(), move |session| {
                let head = head(session, &config.name)?
                    .ok_or_else(|| Error::missing(what, format!("log {}", config.name)))?;
                let head = expire(session, &config, head)?;
                work(&config, head, session)
            })
            .await
    }
}

#[async_trait]
impl Log for EmbeddedLog {
    async fn append(
        &self,
        subject: &str,
        payload: Bytes,
        expect: AppendCondition<'_>,
    ) -> Result<Appended, Error> {
        let what = format!("append to {subject}");
        validate::subject_of_log(&self.config, subject)?;
        validate::value(&what, &payload)?;
        let (id, empty) = match expect {
            AppendCondition::None => (None, false),
            AppendCondition::NewId(id) => (Some(id.to_owned()), false),
            AppendCondition::EmptySubject => (None, true),
        };
        id.as_deref().map_or(Ok(()), validate::message_id)?;
        let subject = subject.to_owned();
        self.run(what.clone(), move |config, head, session| {
            if let Some(id) = &id
                && let Some(sequence) = duplicate(session, config, head.id, id)?
            {
                return Ok(Appended { sequence, duplicate: true });
            }
            if empty && let Some(last) = last(session, head.id, &subject)? {
                return Err(Error::conflict(what, Some(Revision(last.sequence))).into());
            }
            refuse_if_full(config, &head, payload.len(), &what)?;
            let sequence = insert(session, head, &subject, id.as_deref(), &payload)?;
            session.changed(Change::Subject { log: config.name.clone(), subject });
            Ok(Appended { sequence: sequence.cast_unsigned(), duplicate: false })
        })
        .await
    }

    async fn read(&self, subject: &str, from: u64, limit: usize) -> Result<Vec<Message>, Error> {
        validate::subject(subject)?;
        let asked = subject.to_owned();
        self.run(format!("read of {subject}"), move |_, head, session| {
            let sql = format!(
                "{COLUMNS} WHERE log = ? AND subject = ? AND sequence >= ? ORDER BY sequence LIMIT ?"
            );
            let mut select = session.db.prepare_cached(&sql)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = select.query_map(params![head.id, asked, signed(from), limit], message)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    async fn next(&self, subject: &str, from: u64) -> Result<Option<Message>, Error> {
        Ok(self.read(subject, from, 1).await?.pop())
    }

    async fn last(&self, subject: &str) -> Result<Option<Message>, Error> {
        validate::subject(subject)?;
        let asked = subject.to_owned();
        self.run(format!("last of {subject}"), move |_, head, session| Ok(last(session, head.id, &asked)?))
            .await
    }

    async fn remove(&self, sequence: u64) -> Result<bool, Error> {
        self.run(format!("removal of {sequence} from {}", self.config.name), move |_, mut head, session| {
            let sql = "DELETE FROM messages WHERE log = ? AND sequence = ? RETURNING length(payload)";
            let removed: Option<i64> =
                find(&session.db, sql, params![head.id, signed(sequence)], |row| row.get(0))?;
            let Some(bytes) = removed else { return Ok(false) };
            head.messages -= 1;
            head.bytes -= bytes;
            save(session, &head)?;
            Ok(true)
        })
        .await
    }

    async fn info(&self) -> Result<LogInfo, Error> {
        self.run(format!("info of {}", self.config.name), |_, head, session| {
            let sql = "SELECT min(sequence) FROM messages WHERE log = ?";
            let first: Option<i64> =
                session.db.prepare_cached(sql)?.query_row([head.id], |row| row.get(0))?;
            Ok(LogInfo {
                created: head.created.cast_unsigned(),
                first: first.unwrap_or(head.last + 1).cast_unsigned(),
                last: head.last.cast_unsigned(),
                messages: head.messages.cast_unsigned(),
            })
        })
        .await
    }

    async fn subjects(&self) -> Result<BTreeMap<String, u64>, Error> {
        self.run(format!("subjects of {}", self.config.name), |_, head, session| {
            let sql = "SELECT subject, count(*) FROM messages WHERE log = ? GROUP BY subject";
            let mut select = session.db.prepare_cached(sql)?;
            let rows = select
                .query_map([head.id], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    async fn subscribe_wake_ups(&self, subject: &str) -> Result<WakeUpSubscription, Error> {
        validate::subject(subject)?;
        let (bell, doorbell) = WakeUpSubscription::new(());
        self.engine.signals.add_subscription(&self.config.name, subject, bell);
        Ok(doorbell)
    }
}

fn head(session: &Session, name: &str) -> rusqlite::Result<Option<LogHeader>> {
    let sql = "SELECT id, created, last, messages, bytes FROM logs WHERE name = ?";
    find(&session.db, sql, [name], |row| {
        Ok(LogHeader {
            id: row.get(0)?,
            created: row.get(1)?,
            last: row.get(2)?,
            messages: row.get(3)?,
            bytes: row.get(4)?,
        })
    })
}

fn save(session: &Session, head: &LogHeader) -> rusqlite::Result<()> {
    let sql = "UPDATE logs SET last = ?, messages = ?, bytes = ? WHERE id = ?";
    session.db.prepare_cached(sql)?.execute([head.last, head.messages, head.bytes, head.id])?;
    Ok(())
}

fn expire(session: &Session, config: &LogConfig, mut head: LogHeader) -> rusqlite::Result<LogHeader> {
    let Some(age) = config.max_age else { return Ok(head) };
    let before = session.expired_before(age);
    let sql =
        "SELECT count(*), coalesce(sum(length(payload)), 0) FROM messages WHERE log = ? AND stored_at <= ?";
    let (messages, bytes): (i64, i64) =
        session.db.prepare_cached(sql)?.query_row([head.id, before], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if messages > 0 {
        let sql = "DELETE FROM messages WHERE log = ? AND stored_at <= ?";
        session.db.prepare_cached(sql)?.execute([head.id, before])?;
        head.messages -= messages;
        head.bytes -= bytes;
        save(session, &head)?;
    }
    Ok(head)
}

fn duplicate(session: &Session, config: &LogConfig, log: i64, id: &str) -> rusqlite::Result<Option<u64>> {
    let since = session.expired_before(config.duplicate_window);
    let sql = "SELECT max(sequence) FROM messages WHERE log = ? AND message_id = ? AND stored_at > ?";
    let sequence: Option<i64> =
        session.db.prepare_cached(sql)?.query_row(params![log, id, since], |row| row.get(0))?;
    Ok(sequence.map(i64::cast_unsigned))
}

fn last(session: &Session, log: i64, subject: &str) -> rusqlite::Result<Option<Message>> {
    let sql = format!("{COLUMNS} WHERE log = ? AND subject = ? ORDER BY sequence DESC LIMIT 1");
    find(&session.db, &sql, params![log, subject], message)
}

fn refuse_if_full(config: &LogConfig, head: &LogHeader, size: usize, what: &str) -> Result<(), Error> {
    let full = |limit: u64, unit: &str| {
        Err(Error::failed(what, format!("the log {} is full at {limit} {unit}", config.name)))
    };
    if let Some(limit) = config.max_messages
        && head.messages.cast_unsigned() >= limit
    {
        return full(limit, "messages");
    }
    if let Some(limit) = config.max_bytes
        && head.bytes.cast_unsigned().saturating_add(size as u64) > limit
    {
        return full(limit, "bytes");
    }
    Ok(())
}

fn insert(
    session: &mut Session,
    mut head: LogHeader,
    subject: &str,
    id: Option<&str>,
    payload: &Bytes,
) -> rusqlite::Result<i64> {
    head.last += 1;
    head.messages += 1;
    head.bytes += i64::try_from(payload.len()).unwrap_or(0);
    let stored_at = session.next_timestamp();
    let sql = "INSERT INTO messages (log, sequence, subject, stored_at, message_id, payload) VALUES (?, ?, ?, ?, ?, ?)";
    let row = params![head.id, head.last, subject, stored_at, id, payload.as_ref()];
    session.db.prepare_cached(sql)?.execute(row)?;
    save(session, &head)?;
    Ok(head.last)
}

fn message(row: &Row<'_>) -> rusqlite::Result<Message> {
    Ok(Message {
        subject: row.get(0)?,
        sequence: row.get::<_, i64>(1)?.cast_unsigned(),
        payload: row.get::<_, Vec<u8>>(2)?.into(),
        stored_at: row.get::<_, i64>(3)?.cast_unsigned(),
    })
}

/// No sequence is above what the database can count.
fn signed(sequence: u64) -> i64 {
    i64::try_from(sequence).unwrap_or(i64::MAX)
}
