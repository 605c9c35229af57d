//! Reading: what the commands show.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use phalanx_fsm::State as _;
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::Serialize;
use serde_json::Value;

use super::Error;
use super::write::{Writer, unpack};
use crate::ProviderState;
use crate::core::provider::Saved;

/// A provider's statistics, with the names of the design and what the broker says.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names are the documentation: they are the design's")]
pub struct ProviderStats {
    pub id: String,
    pub state: String,
    pub provider_type: String,
    pub last_checkpoint: Option<String>,
    pub processed_count: i64,
    pub error_count: i64,
    pub permits_held: i64,
    pub created_at: String,
    pub updated_at: String,
    pub permits_wanted: i64,
    pub permits_revoked: i64,
    pub permits_why: Option<String>,
    pub pause_wish: bool,
    pub deadline: Option<String>,
    pub run_id: Option<String>,
    /// The outcome of the last run that ended.
    pub last_outcome: Option<String>,
    /// Whether a run ever completed, so that dependents may start.
    pub satisfied: bool,
    /// Satisfied by an earlier run, but the last one did not complete.
    pub stale: bool,
}

/// The macro machine's statistics, with the names of the design.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names are the documentation: they are the design's")]
pub struct MacroStats {
    pub id: String,
    pub state: String,
    pub provider_count: i64,
    pub event_queue_len: i64,
    pub provider_states: BTreeMap<String, i64>,
    pub created_at: String,
    pub updated_at: String,
}

/// A run, as the summary shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct RunRow {
    pub provider: String,
    pub run_id: String,
    pub outcome: Option<String>,
    pub read: i64,
    pub stored: i64,
    pub unchanged: i64,
    pub dead_lettered: i64,
    pub skipped: i64,
    pub duration_ms: i64,
    pub reason: Option<String>,
    /// Why items were skipped, and how many each.
    pub skips: BTreeMap<String, i64>,
}

/// A checkpoint: the five fields of the design.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
#[allow(missing_docs, reason = "the names are the documentation: they are the design's")]
pub struct Checkpoint {
    #[serde(rename = "URN")]
    pub urn: String,
    #[serde(rename = "ProviderID")]
    pub provider_id: String,
    pub processed_at: String,
    pub success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// An item nobody understood.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct DeadLetter {
    pub id: i64,
    pub provider: String,
    pub run_id: String,
    pub source: String,
    pub position: i64,
    pub reason: String,
    pub at: String,
    pub raw: String,
}

/// An event, as it was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct EventRow {
    pub seq: i64,
    pub at: String,
    pub provider: String,
    pub run_id: Option<String>,
    pub kind: String,
    pub detail: String,
}

/// A step of a machine, as it was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct Step {
    pub machine: String,
    pub from: String,
    pub to: String,
    pub cause: String,
}

/// An earlier version of a record.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct Version {
    pub version: i64,
    /// The fields the following version changed.
    pub changed: Value,
    pub title: String,
    pub text: String,
    pub modified: Option<String>,
    pub run_id: Option<String>,
}

/// All there is of one record.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct RecordView {
    pub urn: String,
    pub provider: String,
    pub title: String,
    pub text: String,
    pub published: Option<String>,
    pub modified: Option<String>,
    pub status: Option<String>,
    pub severity: Option<String>,
    pub details: Value,
    pub version: i64,
    pub source: String,
    pub position: i64,
    pub checksum: Option<String>,
    pub fetched_at: String,
    pub run_id: String,
    /// As (kind, urn).
    pub links: Vec<(String, String)>,
    /// As (kind, urn).
    pub linked_from: Vec<(String, String)>,
    pub versions: Vec<Version>,
    pub raw: String,
}

/// Somebody who reads.
pub struct Reader {
    connection: Connection,
}

impl Reader {
    /// Opens `file` for reading; it must be there.
    pub fn open(file: &Path) -> Result<Self, Error> {
        Ok(Self { connection: super::open_for_reading(file)? })
    }

    /// Every provider, by id.
    pub fn providers(&self) -> Result<Vec<ProviderStats>, Error> {
        self.rows(
            "SELECT p.*, (SELECT outcome FROM runs WHERE provider = p.id AND outcome IS NOT NULL ORDER BY seq DESC
                LIMIT 1) AS last_outcome,
                EXISTS (SELECT 1 FROM runs WHERE provider = p.id AND outcome LIKE 'completed%') AS satisfied
             FROM providers p ORDER BY id",
            [],
            |row| {
                let last_outcome: Option<String> = row.get("last_outcome")?;
                let satisfied = row.get("satisfied")?;
                Ok(ProviderStats {
                    id: row.get("id")?,
                    state: row.get("state")?,
                    provider_type: row.get("provider_type")?,
                    last_checkpoint: row.get("last_checkpoint")?,
                    processed_count: row.get("processed_count")?,
                    error_count: row.get("error_count")?,
                    permits_held: row.get("permits_held")?,
                    created_at: time(row, "created_ms")?,
                    updated_at: time(row, "updated_ms")?,
                    permits_wanted: row.get("permits_wanted")?,
                    permits_revoked: row.get("permits_revoked")?,
                    permits_why: row.get("permits_why")?,
                    pause_wish: row.get("pause_wish")?,
                    deadline: row.get::<_, Option<i64>>("deadline_ms")?.map(rfc3339),
                    run_id: row.get("run_id")?,
                    stale: satisfied
                        && last_outcome.as_ref().is_some_and(|outcome| !outcome.starts_with("completed")),
                    last_outcome,
                    satisfied,
                })
            },
        )
    }

    /// The macro machine; `None` before the first run.
    pub fn macro_stats(&self) -> Result<Option<MacroStats>, Error> {
        let mut provider_states = BTreeMap::new();
        let mut provider_count = 0;
        for provider in self.providers()? {
            *provider_states.entry(provider.state).or_insert(0) += 1;
            provider_count += 1;
        }
        Ok(self
            .connection
            .query_row("SELECT * FROM macro", [], |row| {
                Ok(MacroStats {
                    id: row.get("id")?,
                    state: row.get("state")?,
                    provider_count,
                    event_queue_len: 0,
                    provider_states,
                    created_at: time(row, "created_ms")?,
                    updated_at: time(row, "updated_ms")?,
                })
            })
            .optional()?)
    }

    /// Runs, newest last.
    pub fn runs(&self) -> Result<Vec<RunRow>, Error> {
        let mut runs = self.rows("SELECT * FROM runs ORDER BY seq", [], |row| {
            let started: i64 = row.get("started_ms")?;
            Ok(RunRow {
                provider: row.get("provider")?,
                run_id: row.get("id")?,
                outcome: row.get("outcome")?,
                read: row.get("read")?,
                stored: row.get("stored")?,
                unchanged: row.get("unchanged")?,
                dead_lettered: row.get("dead_lettered")?,
                skipped: row.get("skipped")?,
                duration_ms: row.get::<_, Option<i64>>("ended_ms")?.map_or(0, |ended| ended - started),
                reason: row.get("reason")?,
                skips: BTreeMap::new(),
            })
        })?;
        for run in &mut runs {
            run.skips = self
                .rows("SELECT reason, count FROM skips WHERE run_id = ?1", [&run.run_id], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?
                .into_iter()
                .collect();
        }
        Ok(runs)
    }

    /// The latest checkpoints, oldest first.
    pub fn checkpoints(&self, limit: usize) -> Result<Vec<Checkpoint>, Error> {
        let mut rows =
            self.rows("SELECT * FROM checkpoints ORDER BY seq DESC LIMIT ?1", [limit as i64], |row| {
                Ok(Checkpoint {
                    urn: row.get("urn")?,
                    provider_id: row.get("provider_id")?,
                    processed_at: time(row, "processed_ms")?,
                    success: row.get("success")?,
                    error_message: row.get("error_message")?,
                })
            })?;
        rows.reverse();
        Ok(rows)
    }

    /// Dead letters, oldest first.
    pub fn dead_letters(&self) -> Result<Vec<DeadLetter>, Error> {
        let rows = self.rows(
            "SELECT d.*, s.location FROM dead_letters d LEFT JOIN sources s ON s.id = d.source_id ORDER BY d.id",
            [],
            |row| {
                let letter = DeadLetter {
                    id: row.get("id")?,
                    provider: row.get("provider")?,
                    run_id: row.get("run_id")?,
                    source: row.get::<_, Option<String>>("location")?.unwrap_or_default(),
                    position: row.get("position")?,
                    reason: row.get("reason")?,
                    at: time(row, "at_ms")?,
                    raw: String::new(),
                };
                Ok((letter, row.get::<_, Vec<u8>>("raw")?))
            },
        )?;
        rows.into_iter()
            .map(|(mut letter, raw)| {
                letter.raw = String::from_utf8_lossy(&unpack(&raw, "a dead letter")?).into_owned();
                Ok(letter)
            })
            .collect()
    }

    /// The latest events, oldest first.
    pub fn events(&self, limit: usize) -> Result<Vec<EventRow>, Error> {
        let mut rows =
            self.rows("SELECT * FROM events ORDER BY seq DESC LIMIT ?1", [limit as i64], |row| {
                Ok(EventRow {
                    seq: row.get("seq")?,
                    at: time(row, "at_ms")?,
                    provider: row.get("provider")?,
                    run_id: row.get("run_id")?,
                    kind: row.get("kind")?,
                    detail: row.get("detail")?,
                })
            })?;
        rows.reverse();
        Ok(rows)
    }

    /// Every step of every machine, oldest first.
    pub fn history(&self) -> Result<Vec<Step>, Error> {
        self.rows("SELECT * FROM history ORDER BY seq", [], |row| {
            Ok(Step {
                machine: row.get("machine")?,
                from: row.get("from_state")?,
                to: row.get("to_state")?,
                cause: row.get("cause")?,
            })
        })
    }

    /// The record of that URN. The bare form of an ASVS id is the newest loaded one.
    pub fn record(&self, urn: &str) -> Result<Option<RecordView>, Error> {
        let view = self
            .connection
            .query_row(
                "SELECT r.*, s.location, s.checksum, s.fetched_ms, p.position, p.run_id FROM records r
                 JOIN provenance p ON p.record_id = r.id JOIN sources s ON s.id = p.source_id WHERE r.urn = ?1",
                [urn],
                |row| {
                    let view = RecordView {
                        urn: row.get("urn")?,
                        provider: row.get("provider")?,
                        title: row.get("title")?,
                        text: row.get("text")?,
                        published: row.get("published")?,
                        modified: row.get("modified")?,
                        status: row.get("status")?,
                        severity: row.get("severity")?,
                        details: json(&row.get::<_, String>("details")?),
                        version: row.get("version")?,
                        source: row.get("location")?,
                        position: row.get("position")?,
                        checksum: row.get("checksum")?,
                        fetched_at: time(row, "fetched_ms")?,
                        run_id: row.get("run_id")?,
                        links: Vec::new(),
                        linked_from: Vec::new(),
                        versions: Vec::new(),
                        raw: String::new(),
                    };
                    Ok((view, row.get::<_, Vec<u8>>("raw")?))
                },
            )
            .optional()?;
        let Some((mut view, raw)) = view else {
            return self.newest_asvs(urn)?.map_or(Ok(None), |full| self.record(&full));
        };
        view.raw = String::from_utf8_lossy(&unpack(&raw, urn)?).into_owned();
        let pair = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        view.links = self.rows(
            "SELECT kind, to_urn FROM links WHERE from_urn = ?1 ORDER BY kind, to_urn",
            [&view.urn],
            pair,
        )?;
        view.linked_from = self.rows(
            "SELECT kind, from_urn FROM links WHERE to_urn = ?1 ORDER BY kind, from_urn LIMIT 1000",
            [&view.urn],
            pair,
        )?;
        view.versions =
            self.rows("SELECT * FROM record_versions WHERE urn = ?1 ORDER BY version", [&view.urn], |row| {
                Ok(Version {
                    version: row.get("version")?,
                    changed: json(&row.get::<_, String>("changed")?),
                    title: row.get("title")?,
                    text: row.get("text")?,
                    modified: row.get("modified")?,
                    run_id: row.get("run_id")?,
                })
            })?;
        Ok(Some(view))
    }

    /// URNs of the records that match a full-text query, best first.
    pub fn search(&self, query: &str, limit: usize) -> Result<Vec<String>, Error> {
        self.rows(
            "SELECT r.urn FROM search JOIN records r ON r.id = search.rowid WHERE search MATCH ?1
             ORDER BY rank LIMIT ?2",
            rusqlite::params![query, limit as i64],
            |row| row.get(0),
        )
    }

    fn newest_asvs(&self, urn: &str) -> Result<Option<String>, Error> {
        let Some(id) = urn.strip_prefix("v2e::owasp::asvs::") else { return Ok(None) };
        let bare = id.trim_start_matches('V').to_owned();
        let mut loaded: Vec<(Vec<u64>, String)> = self
            .rows(
                "SELECT urn FROM records WHERE urn LIKE 'v2e::owasp::asvs::%' AND urn LIKE '%-V' || ?1",
                [bare],
                |row| row.get::<_, String>(0),
            )?
            .into_iter()
            .map(|urn| {
                let version = urn.rsplit("::").next().and_then(|id| id.split('-').next()).unwrap_or_default();
                (version.split('.').map(|part| part.parse().unwrap_or_default()).collect(), urn)
            })
            .collect();
        loaded.sort_unstable();
        Ok(loaded.pop().map(|(_, urn)| urn))
    }

    fn rows<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        Ok(self.connection.prepare_cached(sql)?.query_map(params, row)?.collect::<Result<_, _>>()?)
    }
}

/// What a run that was under way when the process ended left behind.
#[derive(Clone, Debug)]
pub(crate) struct Unfinished {
    pub(crate) run_id: String,
    pub(crate) source: String,
    pub(crate) saved: Saved,
}

impl Writer {
    /// What of `provider` goes on after a restart, if anything does.
    pub(crate) fn unfinished(&self, provider: &str) -> Result<Option<Unfinished>, Error> {
        Ok(self
            .connection()
            .query_row(
                "SELECT p.*, r.source FROM providers p JOIN runs r ON r.id = p.run_id
                 WHERE p.id = ?1 AND r.ended_ms IS NULL",
                [provider],
                |row| {
                    let state: String = row.get("state")?;
                    let deadline: Option<i64> = row.get("deadline_ms")?;
                    Ok(Unfinished {
                        run_id: row.get("run_id")?,
                        source: row.get("source")?,
                        saved: Saved {
                            // A state nobody knows can only come from another hand; begin the run anew.
                            state: ProviderState::from_name(&state).unwrap_or(ProviderState::Idle),
                            failures: row.get("failures")?,
                            deadline: deadline.map(|ms| Duration::from_millis(ms.unsigned_abs())),
                            pause_wish: row.get("pause_wish")?,
                            processed: row.get::<_, i64>("processed_count")?.unsigned_abs(),
                            errors: row.get::<_, i64>("error_count")?.unsigned_abs(),
                            last_checkpoint: row.get("last_checkpoint")?,
                        },
                    })
                },
            )
            .optional()?)
    }

    /// Where the next read of that source goes on.
    pub(crate) fn cursor(&self, provider: &str, source: &str) -> Result<Option<String>, Error> {
        Ok(self
            .connection()
            .query_row(
                "SELECT cursor FROM cursors WHERE provider = ?1 AND source = ?2",
                [provider, source],
                |row| row.get(0),
            )
            .optional()?)
    }
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
