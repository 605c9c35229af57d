//! Writing: everything that belongs together goes in one transaction.
//!
//! What is written for every batch or record is plain INSERT and UPDATE and no upsert: SQLite guards an upsert with a
//! savepoint, and at a savepoint the full-text index writes out all it has gathered.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use phalanx_fsm::State as _;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::{Error, millis, record};
use crate::core::broker::Statistics;
use crate::core::provider::Saved;
use crate::core::{EventKind, Outcome};
use crate::record::{Entry, SourceRef, Verdict, decompress};
use crate::{MacroState, ProviderState};

/// A step of a machine, for the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The state left.
    pub from: &'static str,
    /// The state entered.
    pub to: &'static str,
    /// Why.
    pub cause: String,
}

/// What one provider wants written, all of it or nothing.
#[derive(Default)]
pub struct Commit {
    /// Whose.
    pub provider: String,
    /// Of which run.
    pub run_id: String,
    /// When.
    pub at: Duration,
    /// Where the entries were read.
    pub source: Option<SourceRef>,
    /// What was read.
    pub(crate) entries: Vec<Entry>,
    /// Where to go on, as (source, cursor).
    pub cursor: Option<(String, String)>,
    /// The machine.
    pub saved: Option<Saved>,
    /// Its steps.
    pub history: Vec<Moved>,
    /// What it tells the orchestrator.
    pub events: Vec<(EventKind, String)>,
    /// The end of the run.
    pub ended: Option<(Outcome, String)>,
    /// What the broker says of it.
    pub permits: Option<Statistics>,
}

/// What became of the entries of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries in all.
    pub read: u64,
    /// New or changed records.
    pub stored: u64,
    /// Records that were there already, just so.
    pub unchanged: u64,
    /// Entries nobody understood.
    pub dead_lettered: u64,
    /// Entries that are rightly no record.
    pub skipped: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.stored += other.stored;
        self.unchanged += other.unchanged;
        self.dead_lettered += other.dead_lettered;
        self.skipped += other.skipped;
    }
}

/// The one who writes.
pub struct Writer {
    connection: Connection,
    /// Held, never read: it goes with the writer.
    _lock: File,
}

impl Writer {
    /// Opens `file` for writing, and makes it where it is not there.
    pub fn open(file: &Path) -> Result<Self, Error> {
        let (connection, _lock) = super::open(file)?;
        Ok(Self { connection, _lock })
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Makes sure the provider has a row.
    pub fn register(&mut self, id: &str, provider_type: &str, now: Duration) -> Result<(), Error> {
        self.connection.execute(
            "INSERT INTO providers (id, provider_type, state, created_ms, updated_ms) VALUES (?1, ?2, ?3, ?4, ?4)
             ON CONFLICT DO UPDATE SET permits_held = 0, permits_wanted = 0",
            params![id, provider_type, ProviderState::Idle.name(), millis(now)],
        )?;
        Ok(())
    }

    /// Begins a run of `provider` that reads `source`, and gives it an id.
    pub fn begin_run(&mut self, provider: &str, source: &str, now: Duration) -> Result<String, Error> {
        let transaction = self.connection.transaction()?;
        let id = new_run(&transaction, provider, source, now, false)?;
        transaction.execute(
            "UPDATE providers SET state = ?2, run_id = ?3, failures = 0, deadline_ms = NULL, pause_wish = 0,
                processed_count = 0, error_count = 0, updated_ms = ?4 WHERE id = ?1",
            params![provider, ProviderState::Idle.name(), id, millis(now)],
        )?;
        transaction.commit()?;
        Ok(id)
    }

    /// Begins a run that tries dead letters of `provider` once more; whatever else the provider does is not touched.
    pub(crate) fn begin_retry(&mut self, provider: &str, now: Duration) -> Result<String, Error> {
        new_run(&self.connection, provider, "dead letters", now, true)
    }

    /// The macro machine begins anew.
    pub fn macro_begins(&mut self, now: Duration) -> Result<(), Error> {
        set_macro(&self.connection, MacroState::Bootstrapping.name(), now)?;
        // What an earlier process left behind is nobody's queue any more.
        self.connection
            .execute("UPDATE macro SET events_handled = (SELECT coalesce(max(seq), 0) FROM events)", [])?;
        Ok(())
    }

    /// The macro machine has taken every event up to `seq`.
    pub(crate) fn events_handled(&self, seq: i64) -> Result<(), Error> {
        events_handled(&self.connection, seq)
    }

    /// The number of the last event there is.
    pub(crate) fn last_event(&self) -> Result<i64, Error> {
        last_event(&self.connection)
    }

    /// Writes all of it in one transaction, and says what became of the entries of each.
    pub fn commit(&mut self, commits: &[Commit]) -> Result<Vec<Counts>, Error> {
        let transaction = self.connection.transaction()?;
        let counts = commits.iter().map(|commit| apply(&transaction, commit)).collect::<Result<_, _>>()?;
        transaction.commit()?;
        Ok(counts)
    }

    /// Begins a transaction by hand, to put several commits into it as they come.
    pub(crate) fn batch(&mut self) -> Result<Batch<'_>, Error> {
        Ok(Batch(self.connection.transaction()?))
    }
}

/// An open transaction.
pub(crate) struct Batch<'a>(Transaction<'a>);

impl Batch<'_> {
    pub(crate) fn add(&mut self, commit: &Commit) -> Result<Counts, Error> {
        apply(&self.0, commit)
    }

    /// Keeps a step of the macro machine.
    pub(crate) fn macro_moved(&self, moved: &Moved, now: Duration) -> Result<(), Error> {
        history(&self.0, "macro", None, moved, now)?;
        set_macro(&self.0, moved.to, now)
    }

    /// The macro machine has taken every event up to `seq`.
    pub(crate) fn events_handled(&self, seq: i64) -> Result<(), Error> {
        events_handled(&self.0, seq)
    }

    /// The number of the last event there is.
    pub(crate) fn last_event(&self) -> Result<i64, Error> {
        last_event(&self.0)
    }

    /// Takes a dead letter out, because what it held was understood after all.
    pub(crate) fn forget_dead_letter(&self, id: i64) -> Result<(), Error> {
        self.0.execute("DELETE FROM dead_letters WHERE id = ?1", [id])?;
        Ok(())
    }

    pub(crate) fn commit(self) -> Result<(), Error> {
        Ok(self.0.commit()?)
    }
}

fn new_run(
    to: &Connection,
    provider: &str,
    source: &str,
    now: Duration,
    is_retry: bool,
) -> Result<String, Error> {
    let sql = "INSERT INTO runs (id, provider, source, started_ms, is_retry)
        SELECT ?1 || '-' || (count(*) + 1), ?1, ?2, ?3, ?4 FROM runs WHERE provider = ?1 RETURNING id";
    Ok(to.query_row(sql, params![provider, source, millis(now), is_retry], |row| row.get(0))?)
}

fn last_event(of: &Connection) -> Result<i64, Error> {
    Ok(of.prepare_cached("SELECT coalesce(max(seq), 0) FROM events")?.query_row([], |row| row.get(0))?)
}

fn events_handled(to: &Connection, seq: i64) -> Result<(), Error> {
    to.prepare_cached("UPDATE macro SET events_handled = ?1")?.execute([seq])?;
    Ok(())
}

fn apply(to: &Connection, commit: &Commit) -> Result<Counts, Error> {
    let now = millis(commit.at);
    let mut counts = Counts::default();
    let source_id = commit.source.as_ref().map(|source| source_row(to, commit, source)).transpose()?;
    for entry in &commit.entries {
        counts.read += 1;
        apply_entry(to, commit, source_id.unwrap_or_default(), entry, &mut counts)?;
    }
    if counts.read > 0 {
        to.prepare_cached(
            "UPDATE runs SET read = read + ?2, stored = stored + ?3, unchanged = unchanged + ?4,
                dead_lettered = dead_lettered + ?5, skipped = skipped + ?6 WHERE id = ?1",
        )?
        .execute(params![
            commit.run_id,
            counts.read as i64,
            counts.stored as i64,
            counts.unchanged as i64,
            counts.dead_lettered as i64,
            counts.skipped as i64
        ])?;
        if let Some(urn) = commit.entries.iter().rev().find_map(Entry::urn) {
            checkpoint(to, commit, urn.as_str(), None)?;
        }
    }
    if let Some((source, cursor)) = &commit.cursor {
        let values = [&commit.provider, source, cursor];
        let update = "UPDATE cursors SET cursor = ?3 WHERE provider = ?1 AND source = ?2";
        if to.prepare_cached(update)?.execute(values)? == 0 {
            to.prepare_cached("INSERT INTO cursors (provider, source, cursor) VALUES (?1, ?2, ?3)")?
                .execute(values)?;
        }
    }
    for moved in &commit.history {
        history(to, &commit.provider, Some(&commit.run_id), moved, commit.at)?;
    }
    for (kind, detail) in &commit.events {
        to.prepare_cached(
            "INSERT INTO events (at_ms, provider, run_id, kind, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![now, commit.provider, commit.run_id, kind.name(), detail])?;
    }
    if let Some(saved) = &commit.saved {
        save(to, commit, saved)?;
    }
    if let Some(permits) = &commit.permits {
        to.prepare_cached(
            "UPDATE providers SET permits_held = ?2, permits_wanted = ?3, permits_revoked = ?4, permits_why = ?5
             WHERE id = ?1",
        )?
        .execute(params![
            commit.provider,
            permits.held,
            permits.wanted,
            permits.revoked as i64,
            permits.why.as_ref().map(ToString::to_string)
        ])?;
    }
    if let Some((outcome, reason)) = &commit.ended {
        to.execute(
            "UPDATE runs SET ended_ms = ?2, outcome = ?3, reason = ?4 WHERE id = ?1",
            params![commit.run_id, now, outcome.name(), reason],
        )?;
        if *outcome == Outcome::Failed {
            let urn = commit.saved.as_ref().and_then(|saved| saved.last_checkpoint.as_deref());
            checkpoint(to, commit, urn.unwrap_or_default(), Some(reason))?;
        }
    }
    Ok(counts)
}

fn save(to: &Connection, commit: &Commit, saved: &Saved) -> Result<(), Error> {
    to.prepare_cached(
        "UPDATE providers SET updated_ms = CASE WHEN state = ?2 THEN updated_ms ELSE ?9 END, state = ?2,
            failures = ?3, deadline_ms = ?4, pause_wish = ?5, processed_count = ?6, error_count = ?7,
            last_checkpoint = coalesce(?8, last_checkpoint) WHERE id = ?1",
    )?
    .execute(params![
        commit.provider,
        saved.state.name(),
        saved.failures,
        saved.deadline.map(millis),
        saved.pause_wish,
        saved.processed as i64,
        saved.errors as i64,
        saved.last_checkpoint,
        millis(commit.at)
    ])?;
    Ok(())
}

fn source_row(to: &Connection, commit: &Commit, source: &SourceRef) -> Result<i64, Error> {
    let known: Option<i64> = to
        .prepare_cached("SELECT id FROM sources WHERE run_id = ?1 AND location = ?2")?
        .query_row([&commit.run_id, &source.location], |row| row.get(0))
        .optional()?;
    match (known, &source.checksum) {
        (Some(id), None) => Ok(id),
        (Some(id), Some(checksum)) => {
            to.prepare_cached("UPDATE sources SET checksum = ?2 WHERE id = ?1")?
                .execute(params![id, checksum])?;
            Ok(id)
        }
        (None, checksum) => {
            to.prepare_cached(
                "INSERT INTO sources (run_id, location, checksum, fetched_ms) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                commit.run_id,
                source.location,
                checksum,
                millis(source.fetched)
            ])?;
            Ok(to.last_insert_rowid())
        }
    }
}

fn apply_entry(
    to: &Connection,
    commit: &Commit,
    source_id: i64,
    entry: &Entry,
    counts: &mut Counts,
) -> Result<(), Error> {
    match &entry.verdict {
        Ok(Verdict::Record(record)) => {
            if record::store(to, commit, source_id, entry, record)? {
                counts.stored += 1;
            } else {
                counts.unchanged += 1;
            }
        }
        Ok(Verdict::Skip(reason)) => {
            counts.skipped += 1;
            to.prepare_cached(
                "INSERT INTO skips (run_id, reason, count) VALUES (?1, ?2, 1)
                 ON CONFLICT DO UPDATE SET count = count + 1",
            )?
            .execute(params![commit.run_id, reason])?;
        }
        Err(reject) => {
            counts.dead_lettered += 1;
            // The same bytes again are the same letter.
            to.prepare_cached(
                "INSERT INTO dead_letters (provider, hash, run_id, source_id, position, reason, raw, at_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET reason = excluded.reason",
            )?
            .execute(params![
                commit.provider,
                entry.hash,
                commit.run_id,
                source_id,
                entry.position as i64,
                reject.0,
                entry.raw,
                millis(commit.at)
            ])?;
        }
    }
    Ok(())
}

fn checkpoint(to: &Connection, commit: &Commit, urn: &str, error: Option<&str>) -> Result<(), Error> {
    to.prepare_cached(
        "INSERT INTO checkpoints (urn, provider_id, processed_ms, success, error_message) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![urn, commit.provider, millis(commit.at), error.is_none(), error])?;
    Ok(())
}

fn history(
    to: &Connection,
    machine: &str,
    run_id: Option<&str>,
    moved: &Moved,
    at: Duration,
) -> Result<(), Error> {
    to.prepare_cached(
        "INSERT INTO history (at_ms, machine, run_id, from_state, to_state, cause) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![millis(at), machine, run_id, moved.from, moved.to, moved.cause])?;
    Ok(())
}

fn set_macro(to: &Connection, state: &str, now: Duration) -> Result<(), Error> {
    to.execute(
        "INSERT INTO macro (id, state, created_ms, updated_ms) VALUES ('main', ?1, ?2, ?2)
         ON CONFLICT DO UPDATE SET state = excluded.state, updated_ms = excluded.updated_ms",
        params![state, millis(now)],
    )?;
    Ok(())
}

/// The bytes of a dead letter.
pub(crate) fn unpack(raw: &[u8], what: &str) -> Result<Vec<u8>, Error> {
    decompress(raw).map_err(|error| Error::Io { file: what.into(), error })
}
