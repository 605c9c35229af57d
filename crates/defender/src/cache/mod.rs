//! What a worker remembers of its chambers, so that the next run of each needs nothing from the store: the chart state
//! and the last 100 points of each chart, in an SQLite database in memory.
//!
//! Only what is committed counts. A message's results are [staged](Cache::stage) when they are written and
//! [committed](Cache::commit) when its cursor has moved; at every take and every swap that was refused or not answered the
//! chamber is [forgotten](Cache::forget). A chamber is found only at exactly the position that is asked for.
//!
//! A chamber is one row with two packed blobs, not a row for each point: a hit is one look-up and two copies, a commit one
//! upsert, whatever the number of charts.

mod codec;
mod rate;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use phalanx_cluster::core::Position;
use rusqlite::{Connection, OptionalExtension as _, params};

use self::rate::Rate;
use crate::record::{Chamber, Results, StateRow, UChart};
use crate::store::StoreError;

/// What the cache may hold where nothing is said, in MB (`CACHE_SIZE_MB`).
pub const SIZE_MB: usize = 100;

const TABLE: &str = "
    PRAGMA page_size = 65536;
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    CREATE TABLE chambers (
        tool_id TEXT NOT NULL, chamber_id TEXT NOT NULL, bytes INTEGER NOT NULL, state BLOB NOT NULL,
        points BLOB NOT NULL,
        PRIMARY KEY (tool_id, chamber_id));
    -- Apart from the blobs, which a change of their row would copy.
    CREATE TABLE uses (tool_id TEXT NOT NULL, chamber_id TEXT NOT NULL, used INTEGER NOT NULL,
        PRIMARY KEY (tool_id, chamber_id)) WITHOUT ROWID;
    CREATE TRIGGER unused AFTER DELETE ON chambers BEGIN
        DELETE FROM uses WHERE tool_id = old.tool_id AND chamber_id = old.chamber_id;
    END;
    CREATE TRIGGER used AFTER INSERT ON chambers BEGIN
        INSERT INTO uses SELECT new.tool_id, new.chamber_id, coalesce(max(used), 0) + 1 FROM uses;
    END;
    CREATE INDEX uses_by_age ON uses (used);
";

/// What a row costs beside its blobs.
const ROW_BYTES: usize = 256;

/// The cache of one worker.
pub struct Cache {
    inner: Mutex<Inner>,
}

struct Inner {
    db: Connection,
    capacity: u64,
    bytes: u64,
    chambers: u64,
    staged: HashMap<Chamber, (StateRow, Vec<UChart>)>,
    hits: u64,
    misses: u64,
    evictions: u64,
    rate: Rate,
}

/// What is known of a chamber as of a committed position.
#[derive(Clone, Debug)]
pub struct Cached {
    /// What its charts remember.
    pub state: StateRow,
    points: Vec<u8>,
}

impl Cached {
    /// The last points of a chart, the newest first.
    pub fn points(&self, indicator: &str) -> Vec<UChart> {
        codec::unpack_points(&self.points, indicator)
    }
}

/// How the cache does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// Questions it could answer.
    pub hits: u64,
    /// Questions it could not.
    pub misses: u64,
    /// Chambers that had to make room.
    pub evictions: u64,
    /// Chambers it has.
    pub chambers: u64,
    /// What they take.
    pub bytes: u64,
    /// What they may take.
    pub capacity: u64,
    /// Hits among the questions of the last five minutes, 0 to 1.
    pub hit_rate: f64,
}

impl Cache {
    /// An empty cache of that many MB.
    pub fn new(now: Instant, size_mb: usize) -> Result<Self, StoreError> {
        let make = || {
            let db = Connection::open_in_memory()?;
            db.execute_batch(TABLE)?;
            Ok(db)
        };
        let db = make().map_err(|e: rusqlite::Error| StoreError::Unavailable(format!("the cache: {e}")))?;
        let inner = Inner {
            db,
            capacity: (size_mb as u64).saturating_mul(1_000_000),
            bytes: 0,
            chambers: 0,
            staged: HashMap::new(),
            hits: 0,
            misses: 0,
            evictions: 0,
            rate: Rate::new(now),
        };
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// What is known of a chamber at exactly that position. Whatever is known of another position is forgotten.
    pub fn get(&self, now: Instant, chamber: &Chamber, position: Position) -> Option<Cached> {
        let mut inner = self.lock();
        let found = inner.read(chamber).filter(|cached| cached.state.mark.position == position);
        inner.rate.count(now, found.is_some());
        match found {
            Some(_) => inner.hits += 1,
            None => {
                inner.misses += 1;
                inner.remove(chamber);
            }
        }
        found
    }

    /// Takes up what was read from the store: the state at a committed position and the points of its history, those of
    /// one chart the newest first.
    pub fn fill(&self, chamber: &Chamber, state: &StateRow, points: &[UChart]) {
        self.lock().write(chamber, state, &codec::pack_points(points.iter()));
    }

    /// Notes what a message leaves behind. It counts from [`commit`](Cache::commit) on.
    pub fn stage(&self, results: &Results) {
        let staged = (results.state.clone(), results.charts.clone());
        self.lock().staged.insert(results.chamber.clone(), staged);
    }

    /// The cursor has moved to that position: what was staged for it counts now. What is not known to follow from what
    /// the cache has is forgotten, and read from the store next time.
    pub fn commit(&self, chamber: &Chamber, position: Position) {
        let mut inner = self.lock();
        let staged = inner.staged.remove(chamber).filter(|(state, _)| state.mark.position == position);
        let known = inner.read(chamber);
        let Some((state, charts)) = staged else { return inner.remove(chamber) };
        let before = match &known {
            Some(known) if Some(known.state.mark.position) == state.predecessor => &*known.points,
            None if state.predecessor.is_none() => &[],
            _ => return inner.remove(chamber),
        };
        inner.write(chamber, &state, &codec::add_points(before, &charts));
    }

    /// The chamber has moved away, was taken anew, or a swap was refused or not answered.
    pub fn forget(&self, chamber: &Chamber) {
        let mut inner = self.lock();
        inner.staged.remove(chamber);
        inner.remove(chamber);
    }

    /// How it does.
    pub fn statistics(&self, now: Instant) -> Statistics {
        let inner = self.lock();
        Statistics {
            hits: inner.hits,
            misses: inner.misses,
            evictions: inner.evictions,
            chambers: inner.chambers,
            bytes: inner.bytes,
            capacity: inner.capacity,
            hit_rate: inner.rate.at(now),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error of the database in memory is a miss: the store has everything.
impl Inner {
    fn read(&mut self, chamber: &Chamber) -> Option<Cached> {
        let find = "SELECT state, points FROM chambers WHERE tool_id = ? AND chamber_id = ?";
        let use_it =
            "UPDATE uses SET used = (SELECT max(used) FROM uses) + 1 WHERE tool_id = ? AND chamber_id = ?";
        let (tool, name) = (chamber.tool(), chamber.chamber());
        let found = self.db.prepare_cached(find).and_then(|mut find| {
            let blobs = |row: &rusqlite::Row<'_>| {
                let state = codec::unpack_state(row.get_ref(0)?.as_blob()?);
                Ok((state, row.get_ref(1)?.as_blob()?.to_vec()))
            };
            find.query_row(params![tool, name], blobs).optional()
        });
        let (state, points) = found.ok().flatten()?;
        let used = self.db.prepare_cached(use_it);
        used.and_then(|mut used| used.execute(params![tool, name])).ok()?;
        Some(Cached { state: state?, points })
    }

    fn write(&mut self, chamber: &Chamber, state: &StateRow, points: &[u8]) {
        self.remove(chamber);
        let state = codec::pack_state(state);
        let bytes = (state.len() + points.len() + ROW_BYTES) as u64;
        if bytes > self.capacity {
            return;
        }
        while self.bytes + bytes > self.capacity && self.evict() {}
        let insert =
            "INSERT INTO chambers (tool_id, chamber_id, bytes, state, points) VALUES (?, ?, ?, ?, ?)";
        let row = params![chamber.tool(), chamber.chamber(), bytes.cast_signed(), state, points];
        let inserted = self.db.prepare_cached(insert).and_then(|mut insert| insert.execute(row));
        if inserted.is_ok() {
            self.bytes += bytes;
            self.chambers += 1;
        }
    }

    fn remove(&mut self, chamber: &Chamber) {
        let delete = "DELETE FROM chambers WHERE tool_id = ? AND chamber_id = ? RETURNING bytes";
        self.delete(delete, params![chamber.tool(), chamber.chamber()]);
    }

    /// Makes room by the chamber that was not used for the longest. False when there is none.
    fn evict(&mut self) -> bool {
        let oldest = "DELETE FROM chambers
            WHERE (tool_id, chamber_id) = (SELECT tool_id, chamber_id FROM uses ORDER BY used LIMIT 1) RETURNING bytes";
        let evicted = self.delete(oldest, []);
        self.evictions += u64::from(evicted);
        evicted
    }

    fn delete(&mut self, sql: &str, params: impl rusqlite::Params) -> bool {
        let Ok(mut delete) = self.db.prepare_cached(sql) else { return false };
        let freed = delete.query_row(params, |row| row.get::<_, i64>(0)).optional().ok().flatten();
        self.bytes = self.bytes.saturating_sub(freed.unwrap_or(0).unsigned_abs());
        self.chambers = self.chambers.saturating_sub(freed.is_some().into());
        freed.is_some()
    }
}

#[cfg(test)]
mod cache_test;
