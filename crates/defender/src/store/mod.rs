//! Where charts, alarms and what is known of chambers are kept: one trait, an SQLite file and Apache Cassandra.
//!
//! Tables, write times and ages are in `docs/storage.md`. Times that order rows are kept to the nanosecond and compared in
//! whole milliseconds, which is what Cassandra's own type can do; when something was acknowledged or estimated is kept in
//! whole milliseconds.

#[cfg(feature = "cassandra")]
pub mod cassandra;
#[cfg(feature = "conformance")]
pub mod conformance;
pub(crate) mod encoding;
mod rules;
mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use phalanx_cluster::core::Position;
use thiserror::Error;

#[cfg(feature = "cassandra")]
pub use self::cassandra::Cassandra;
pub use self::rules::{
    ALARMS_KEPT, CHUNK_BYTES_MAX, CHUNKS_MAX, STATE_BYTES_MAX, T_CHARTS_KEPT, U_CHARTS_KEPT,
};
pub(crate) use self::rules::{check, check_chunks, complete, prune_below, seen};
pub use self::sqlite::Sqlite;
use crate::record::{Acknowledgement, Alarm, Chamber, Context, Metadata, Results, StateRow, UChart};

/// Why the store did not do it.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It does not answer, or not in time: no fault of what was asked. Asking again later is safe.
    #[error("the chart store does not answer: {0}")]
    Unavailable(String),
    /// It answers, but refuses this.
    #[error("the chart store refuses: {0}")]
    Refused(String),
}

/// A part of a list of alarms.
#[derive(Clone, Debug)]
pub struct AlarmPage {
    /// The alarms, the newest first, with what people said of them.
    pub alarms: Vec<(Alarm, Option<Acknowledgement>)>,
    /// Where the next page begins, if there is more.
    pub next: Option<String>,
}

/// Where charts are kept. A write of a lower [mark](crate::record::Mark) never changes what one of a higher mark wrote,
/// in whatever order they arrive.
#[async_trait]
pub trait ChartStore: Send + Sync + 'static {
    /// Whether it answers.
    async fn ping(&self) -> Result<(), StoreError>;

    /// Stores the traces of a run, in at most [`CHUNKS_MAX`] parts of at most [`CHUNK_BYTES_MAX`] bytes.
    async fn put_t_chart(&self, chamber: &Chamber, context: &str, chunks: &[Bytes])
    -> Result<(), StoreError>;

    /// The traces of a run, in order; none if they are not all there (yet).
    async fn t_chart(&self, chamber: &Chamber, context: &str) -> Result<Option<Vec<Bytes>>, StoreError>;

    /// What the charts remember at exactly this position.
    async fn state_at(&self, chamber: &Chamber, position: Position) -> Result<Option<StateRow>, StoreError>;

    /// What was written last of what the charts remember, committed or not.
    async fn newest_state(&self, chamber: &Chamber) -> Result<Option<StateRow>, StoreError>;

    /// The last points of a chart, the newest first, each with position and take: also of attempts that do not count.
    /// Those `before` are earlier by whole milliseconds.
    async fn u_charts(
        &self,
        chamber: &Chamber,
        indicator: &str,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<(UChart, Position, u64)>, StoreError>;

    /// The names of the charts a chamber has points of.
    async fn indicators(&self, chamber: &Chamber) -> Result<Vec<Arc<str>>, StoreError>;

    /// Which attempts count, the newest message first: of all messages, or of that one and those before it.
    async fn contexts(
        &self,
        chamber: &Chamber,
        from: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Context>, StoreError>;

    /// Writes what a message leaves behind: all of it, or it will be written again.
    async fn write(&self, results: &Results) -> Result<(), StoreError>;

    /// The alarms of a chamber, or of all chambers, raised since then (and, where the store keeps no order over all
    /// chambers, not more than a day in the future), the newest first. What only an attempt raised that does not count is
    /// left out.
    async fn alarms(
        &self,
        chamber: Option<&Chamber>,
        since: Timestamp,
        page: Option<&str>,
        limit: usize,
    ) -> Result<AlarmPage, StoreError>;

    /// One alarm by its id, with what people said of it. An attempt that does not count raised none.
    async fn alarm(&self, id: &str) -> Result<Option<(Alarm, Option<Acknowledgement>)>, StoreError>;

    /// Notes what a person said of an alarm. Of two sayings the later stays.
    async fn acknowledge(&self, alarm: &str, what: &Acknowledgement) -> Result<(), StoreError>;

    /// Everything known of every chamber.
    async fn metadata(&self) -> Result<Vec<Metadata>, StoreError>;

    /// Notes what is known of chambers; whatever was known of them is replaced.
    async fn put_metadata(&self, chambers: &[Metadata]) -> Result<(), StoreError>;

    /// Deletes some of the rows that are expired at `now` and returns their number; 0 when none is left. A defender calls
    /// it periodically.
    async fn expire(&self, now: Timestamp) -> Result<usize, StoreError>;
}
