//! Reading: what the commands show.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use serde_json::Value;

use super::view::{
    Checkpoint, DeadLetter, EventRow, LinkView, MacroStats, ProviderStats, RecordView, RunRow, Step, Version,
    from_row,
};
use super::write::unpack;
use super::{Error, rows};
use crate::core::timetable::Past;
use crate::text::hex;

/// Somebody who reads.
pub struct Reader {
    pub(super) connection: Connection,
}

impl Reader {
    /// Opens `file` for reading; it must be there.
    pub fn open(file: &Path) -> Result<Self, Error> {
        Ok(Self { connection: super::open_for_reading(file)? })
    }

    /// Every provider, by id.
    pub fn providers(&self) -> Result<Vec<ProviderStats>, Error> {
        rows(
            &self.connection,
            "SELECT p.*, (SELECT outcome FROM runs WHERE provider = p.id AND outcome IS NOT NULL AND NOT is_retry
                ORDER BY seq DESC LIMIT 1) AS last_outcome,
                EXISTS (SELECT 1 FROM runs WHERE provider = p.id AND outcome LIKE 'completed%' AND NOT is_retry)
                AS satisfied
             FROM providers p ORDER BY id",
            [],
            |row| {
                let stats = from_row!(row => ProviderStats {
                    id, state, provider_type, last_checkpoint, processed_count, error_count, permits_held,
                    permits_wanted, permits_revoked, permits_why, pause_wish, run_id, last_outcome, satisfied;
                    created_at: time(row, "created_ms")?,
                    updated_at: time(row, "updated_ms")?,
                    deadline: row.get::<_, Option<i64>>("deadline_ms")?.map(rfc3339),
                    stale: false,
                });
                let failed = stats.last_outcome.as_ref().is_some_and(|last| !last.starts_with("completed"));
                Ok(ProviderStats { stale: stats.satisfied && failed, ..stats })
            },
        )
    }

    /// What the timetable must know of each provider.
    pub fn pasts(&self) -> Result<BTreeMap<String, Past>, Error> {
        let since_epoch = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        let sql = "SELECT p.id, p.created_ms, max(r.started_ms),
                max(r.ended_ms) FILTER (WHERE r.outcome LIKE 'completed%'),
                coalesce(max(r.id = p.run_id AND r.ended_ms IS NULL), 0)
             FROM providers p LEFT JOIN runs r ON r.provider = p.id AND NOT r.is_retry GROUP BY p.id";
        let past = |row: &Row<'_>| {
            let past = Past {
                known_since: since_epoch(row.get(1)?),
                began: row.get::<_, Option<i64>>(2)?.map(since_epoch),
                completed: row.get::<_, Option<i64>>(3)?.map(since_epoch),
                under_way: row.get(4)?,
            };
            Ok((row.get(0)?, past))
        };
        Ok(rows(&self.connection, sql, [], past)?.into_iter().collect())
    }

    /// The macro machine; `None` before the first run.
    pub fn macro_stats(&self) -> Result<Option<MacroStats>, Error> {
        let mut provider_states = BTreeMap::new();
        for provider in self.providers()? {
            *provider_states.entry(provider.state).or_insert(0) += 1;
        }
        let sql = "SELECT *, (SELECT coalesce(max(seq), 0) FROM events) - events_handled AS event_queue_len FROM macro";
        let mut found = rows(&self.connection, sql, [], |row| {
            Ok(from_row!(row => MacroStats {
                id, state, event_queue_len;
                provider_count: provider_states.values().sum(),
                provider_states: provider_states.clone(),
                created_at: time(row, "created_ms")?,
                updated_at: time(row, "updated_ms")?,
            }))
        })?;
        Ok(found.pop())
    }

    /// Runs, newest last.
    pub fn runs(&self) -> Result<Vec<RunRow>, Error> {
        self.runs_by("SELECT * FROM runs ORDER BY seq", [])
    }

    /// The latest runs of a provider, newest first.
    pub fn runs_of(&self, provider: &str, limit: usize) -> Result<Vec<RunRow>, Error> {
        let sql = "SELECT * FROM runs WHERE provider = ?1 ORDER BY seq DESC LIMIT ?2";
        self.runs_by(sql, rusqlite::params![provider, limit as i64])
    }

    fn runs_by(&self, sql: &str, params: impl rusqlite::Params) -> Result<Vec<RunRow>, Error> {
        let mut runs = rows(&self.connection, sql, params, |row| {
            let started: i64 = row.get("started_ms")?;
            Ok(from_row!(row => RunRow {
                provider, outcome, read, stored, unchanged, dead_lettered, skipped, reason;
                run_id: row.get("id")?,
                duration_ms: row.get::<_, Option<i64>>("ended_ms")?.map_or(0, |ended| ended - started),
                skips: BTreeMap::new(),
            }))
        })?;
        for run in &mut runs {
            let sql = "SELECT reason, count FROM skips WHERE run_id = ?1";
            run.skips = rows(&self.connection, sql, [&run.run_id], pair)?.into_iter().collect();
        }
        Ok(runs)
    }

    /// The latest checkpoints, oldest first.
    pub fn checkpoints(&self, limit: usize) -> Result<Vec<Checkpoint>, Error> {
        self.latest("SELECT * FROM checkpoints ORDER BY seq DESC LIMIT ?1", limit, |row| {
            Ok(from_row!(row => Checkpoint {
                urn, provider_id, success, error_message; processed_at: time(row, "processed_ms")?,
            }))
        })
    }

    /// Dead letters, oldest first.
    pub fn dead_letters(&self) -> Result<Vec<DeadLetter>, Error> {
        let letters = rows(
            &self.connection,
            "SELECT d.*, s.location FROM dead_letters d LEFT JOIN sources s ON s.id = d.source_id ORDER BY d.id",
            [],
            |row| {
                let letter = from_row!(row => DeadLetter {
                    id, provider, run_id, position, reason;
                    source: row.get::<_, Option<String>>("location")?.unwrap_or_default(),
                    at: time(row, "at_ms")?,
                    raw: String::new(),
                    raw_hex: None,
                });
                Ok((letter, row.get::<_, Vec<u8>>("raw")?))
            },
        )?;
        letters
            .into_iter()
            .map(|(letter, raw)| {
                let raw = unpack(&raw, "a dead letter")?;
                let raw_hex = std::str::from_utf8(&raw).is_err().then(|| hex(&raw));
                Ok(DeadLetter { raw: String::from_utf8_lossy(&raw).into_owned(), raw_hex, ..letter })
            })
            .collect()
    }

    /// The latest events, oldest first.
    pub fn events(&self, limit: usize) -> Result<Vec<EventRow>, Error> {
        self.latest("SELECT * FROM events ORDER BY seq DESC LIMIT ?1", limit, event)
    }

    /// Every event after the one of that number, oldest first.
    pub fn events_after(&self, seq: i64) -> Result<Vec<EventRow>, Error> {
        rows(&self.connection, "SELECT * FROM events WHERE seq > ?1 ORDER BY seq", [seq], event)
    }

    /// Every step of every machine, oldest first.
    pub fn history(&self) -> Result<Vec<Step>, Error> {
        self.history_after(0)
    }

    /// Every step after the one of that number, oldest first.
    pub fn history_after(&self, seq: i64) -> Result<Vec<Step>, Error> {
        let sql = "SELECT seq, machine, from_state AS \"from\", to_state AS \"to\", cause FROM history
            WHERE seq > ?1 ORDER BY seq";
        rows(&self.connection, sql, [seq], |row| {
            Ok(from_row!(row => Step { seq, machine, from, to, cause; }))
        })
    }

    /// Returns the record of exactly that URN.
    pub fn record(&self, urn: &str) -> Result<Option<RecordView>, Error> {
        let found = rows(
            &self.connection,
            "SELECT r.*, s.location AS source, s.checksum, s.fetched_ms, p.position, p.run_id FROM records r
             JOIN provenance p ON p.record_id = r.id JOIN sources s ON s.id = p.source_id WHERE r.urn = ?1",
            [urn],
            |row| {
                let view = from_row!(row => RecordView {
                    urn, provider, subtype, title, text, published, modified, status, severity, version, source, position,
                    checksum, run_id;
                    details: json(&row.get::<_, String>("details")?),
                    fetched_at: time(row, "fetched_ms")?,
                    links: Vec::new(),
                    linked_from: Vec::new(),
                    versions: Vec::new(),
                    raw: String::new(),
                });
                Ok((view, row.get::<_, Vec<u8>>("raw")?))
            },
        )?
        .pop();
        let Some((mut view, raw)) = found else { return Ok(None) };
        view.raw = String::from_utf8_lossy(&unpack(&raw, urn)?).into_owned();
        let link = |row: &Row<'_>| Ok(from_row!(row => LinkView { kind, urn, title; }));
        let links = "SELECT kind, to_urn AS urn, title FROM links LEFT JOIN records ON urn = to_urn
            WHERE from_urn = ?1 ORDER BY kind, to_urn";
        view.links = rows(&self.connection, links, [&view.urn], link)?;
        let back = "SELECT kind, from_urn AS urn, title FROM links LEFT JOIN records ON urn = from_urn
            WHERE to_urn = ?1 ORDER BY kind, from_urn LIMIT 1000";
        view.linked_from = rows(&self.connection, back, [&view.urn], link)?;
        let versions = "SELECT * FROM record_versions WHERE urn = ?1 ORDER BY version";
        view.versions = rows(&self.connection, versions, [&view.urn], |row| {
            Ok(from_row!(row => Version {
                version, title, text, modified, run_id; changed: json(&row.get::<_, String>("changed")?),
            }))
        })?;
        Ok(Some(view))
    }

    /// Returns the URN of the newest loaded version of a record: `prefix`, a version, `separator` and the short id.
    pub fn newest_version(
        &self,
        prefix: &str,
        separator: &str,
        short_id: &str,
    ) -> Result<Option<String>, Error> {
        let sql = "SELECT urn FROM records WHERE urn LIKE ?1 || '%' AND urn LIKE '%' || ?2 || ?3";
        let loaded =
            rows(&self.connection, sql, [prefix, separator, short_id], |row| row.get::<_, String>(0))?;
        let version = |urn: &String| -> Vec<u64> {
            let version = urn.rsplit("::").next().and_then(|id| id.split('-').next()).unwrap_or_default();
            version.split('.').map(|part| part.parse().unwrap_or_default()).collect()
        };
        Ok(loaded.into_iter().max_by_key(version))
    }

    /// Rows that a query gives newest first, in the order they came.
    fn latest<T>(
        &self,
        sql: &str,
        limit: usize,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let mut latest = rows(&self.connection, sql, [limit as i64], row)?;
        latest.reverse();
        Ok(latest)
    }
}

fn event(row: &Row<'_>) -> rusqlite::Result<EventRow> {
    Ok(from_row!(row => EventRow {
        seq, provider, run_id, kind, detail; at: time(row, "at_ms")?,
    }))
}

fn pair<A: rusqlite::types::FromSql, B: rusqlite::types::FromSql>(row: &Row<'_>) -> rusqlite::Result<(A, B)> {
    Ok((row.get(0)?, row.get(1)?))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<String> {
    row.get(column).map(rfc3339)
}

/// Milliseconds since the epoch, for people.
fn rfc3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}
