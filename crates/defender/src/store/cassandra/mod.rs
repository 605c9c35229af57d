//! The chart store of a fleet: Apache Cassandra.
//!
//! Rows carry the [mark](crate::record::Mark) of their attempt as their write time, so the server itself lets late writes
//! lose, deletions too. Nothing is written speculatively, and no row is read before it is written.

mod alarms;
mod config;
mod fault;
mod link;
mod rows;
mod schema;
mod statements;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{BoxFuture, try_join_all};
use jiff::Timestamp;
use phalanx_cluster::core::Position;
use scylla::value::CqlTimestamp;

pub use self::config::{Config, Consistency, KEYSPACE, Tls};
use self::link::Link;
use self::rows::{ContextRow, MetadataRow, Numbers, PutAlarm, PutUChart, StoredState, UChartRow, all, part};
pub use self::schema::{Applied, Replication, show};
use super::encoding::{self, Time, Word as _, microseconds, newest_pair, pair, signed};
use super::{AlarmPage, ChartStore, StoreError, check, check_chunks, complete, prune_below};
use crate::record::{Acknowledgement, Alarm, Chamber, Context, Metadata, Results, StateRow, UChart};

/// How many chambers are written at once.
const METADATA_AT_ONCE: usize = 64;

/// How many parts of traces are on their way at once: each may be a few MiB.
const CHUNKS_AT_ONCE: usize = 4;

/// A chart store on Cassandra. Clones share its connections.
#[derive(Clone)]
pub struct Cassandra {
    link: Arc<Link>,
}

impl Cassandra {
    /// Connects, and refuses tables that are not as they should be. [`StoreError::Unavailable`] says that it is worth
    /// trying again.
    pub fn connect(config: &Config) -> BoxFuture<'_, Result<Self, StoreError>> {
        Box::pin(async move {
            schema::check(&link::connect(config).await?, config.keyspace()?).await?;
            let live = link::open(config).await?;
            Ok(Self { link: Arc::new(Link::new(config.clone(), live)) })
        })
    }

    /// Makes the keyspace and the tables where they are missing; three copies in every data centre where no replication
    /// is named. What is there and differs is refused, and then nothing is made.
    pub fn apply<'a>(
        config: &'a Config,
        replication: Option<&'a Replication>,
    ) -> BoxFuture<'a, Result<Applied, StoreError>> {
        Box::pin(async move {
            schema::apply(&link::connect(config).await?, config.keyspace()?, replication).await
        })
    }

    /// Removes the keyspace and everything in it.
    pub fn remove(config: &Config) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (session, keyspace) = (link::connect(config).await?, config.keyspace()?);
            schema::change(&session, format!("DROP KEYSPACE IF EXISTS {keyspace}")).await
        })
    }

    /// What the server says its version is.
    pub fn version(config: &Config) -> BoxFuture<'_, Result<String, StoreError>> {
        Box::pin(async move {
            let session = link::connect(config).await?;
            let result = session.query_unpaged("SELECT release_version FROM system.local", ()).await;
            let rows = all::<(String,)>(result.map_err(|e| fault::fault(&e))?)?;
            Ok(rows.into_iter().next().map(|(version,)| version).unwrap_or_default())
        })
    }

    async fn put_state(&self, results: &Results, numbers: Numbers) -> Result<(), StoreError> {
        let (chamber, state) = (&results.chamber, &results.state);
        let (tool, name) = (chamber.tool(), chamber.chamber());
        let history = encoding::history(&state.history);
        let row = (
            tool,
            name,
            numbers.position,
            numbers.take,
            numbers.stamp,
            state.predecessor.map(pair).transpose()?,
            &*state.context,
            signed("a stream", state.stream)?,
            &*history,
            &*state.state,
            numbers.written_at,
        );
        self.link.run(|s| &s.put_state, row).await?;
        if let Some(below) = prune_below(state) {
            self.link.run(|s| &s.prune_states, (numbers.written_at, tool, name, pair(below)?)).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl ChartStore for Cassandra {
    async fn ping(&self) -> Result<(), StoreError> {
        self.link.run(|s| &s.ping, ()).await.map(|_| ())
    }

    async fn put_t_chart(
        &self,
        chamber: &Chamber,
        context: &str,
        chunks: &[Bytes],
    ) -> Result<(), StoreError> {
        check_chunks(chunks)?;
        let count = i32::try_from(chunks.len()).unwrap_or(i32::MAX);
        let numbered: Vec<(i32, &Bytes)> = (0..).zip(chunks).collect();
        for some in numbered.chunks(CHUNKS_AT_ONCE) {
            try_join_all(some.iter().map(|(index, data)| {
                let row = (chamber.tool(), chamber.chamber(), context, *index, count, &data[..]);
                self.link.run(|s| &s.put_chunk, row)
            }))
            .await?;
        }
        Ok(())
    }

    async fn t_chart(&self, chamber: &Chamber, context: &str) -> Result<Option<Vec<Bytes>>, StoreError> {
        let mut parts = Vec::new();
        loop {
            let from = i32::try_from(parts.len()).unwrap_or(i32::MAX);
            let values = (chamber.tool(), chamber.chamber(), context, from);
            let some = all::<(i32, i32, Vec<u8>)>(self.link.run(|s| &s.chunks, values).await?)?;
            let last = some.is_empty() || some.iter().any(|(chunk, chunks, _)| chunk + 1 >= *chunks);
            parts.extend(some.into_iter().map(part));
            if last {
                return Ok(complete(parts));
            }
        }
    }

    async fn state_at(&self, chamber: &Chamber, position: Position) -> Result<Option<StateRow>, StoreError> {
        let values = (chamber.tool(), chamber.chamber(), pair(position)?);
        let found = all::<StoredState>(self.link.run(|s| &s.state_at, values).await?)?.pop();
        found.map(StoredState::read).transpose()
    }

    async fn newest_state(&self, chamber: &Chamber) -> Result<Option<StateRow>, StoreError> {
        let values = (chamber.tool(), chamber.chamber());
        let found = all::<StoredState>(self.link.run(|s| &s.newest_state, values).await?)?.pop();
        found.map(StoredState::read).transpose()
    }

    async fn u_charts(
        &self,
        chamber: &Chamber,
        indicator: &str,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<(UChart, Position, u64)>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let before = CqlTimestamp(before.map_or(i64::MAX, |before| Time::from(before).ms));
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let values = (chamber.tool(), chamber.chamber(), indicator, before, limit);
        let found = all::<UChartRow>(self.link.run(|s| &s.u_charts, values).await?)?;
        found.into_iter().map(UChartRow::read).collect()
    }

    async fn indicators(&self, chamber: &Chamber) -> Result<Vec<Arc<str>>, StoreError> {
        let values = (chamber.tool(), chamber.chamber());
        let found = all::<(String,)>(self.link.run(|s| &s.indicators, values).await?)?;
        Ok(found.into_iter().map(|(name,)| name.into()).collect())
    }

    async fn contexts(
        &self,
        chamber: &Chamber,
        from: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Context>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let values = (chamber.tool(), chamber.chamber(), newest_pair(from)?, limit);
        let found = all::<ContextRow>(self.link.run(|s| &s.contexts, values).await?)?;
        found.into_iter().map(ContextRow::read).collect()
    }

    async fn write(&self, results: &Results) -> Result<(), StoreError> {
        check(results)?;
        let numbers = Numbers::of(results.mark)?;
        let (link, chamber) = (&self.link, &results.chamber);
        let (tool, name) = (chamber.tool(), chamber.chamber());
        let mut writes: Vec<BoxFuture<'_, Result<(), StoreError>>> = Vec::new();
        for chart in &results.charts {
            let row = PutUChart::new(chamber, numbers, chart);
            writes.push(Box::pin(async { link.run(|s| &s.put_u_chart, row).await.map(|_| ()) }));
        }
        let names = results.charts.iter().map(|chart| (tool, name, &*chart.indicator, numbers.written_at));
        writes.push(Box::pin(link.run_together(|s| &s.put_indicator, names.collect())));
        for alarm in &results.alarms {
            let row = PutAlarm::new(numbers, alarm);
            writes.push(Box::pin(async move { link.run(|s| &s.put_alarm, row).await.map(|_| ()) }));
            let (of_day, by_id) = (row.of_day(), row.by_id());
            writes.push(Box::pin(async { link.run(|s| &s.put_alarm_of_day, of_day).await.map(|_| ()) }));
            writes.push(Box::pin(async move { link.run(|s| &s.put_alarm_by_id, by_id).await.map(|_| ()) }));
        }
        writes.push(Box::pin(self.put_state(results, numbers)));
        try_join_all(writes).await?;
        // Last: from here on these are the rows that count.
        let context = &results.context;
        let time = Time::from(context.timestamp);
        let row = (
            tool,
            name,
            numbers.position,
            numbers.take,
            &*context.context,
            CqlTimestamp(time.ms),
            time.ns,
            &*context.strategy,
            context.outcome.word(),
            numbers.written_at,
        );
        link.run(|s| &s.put_context, row).await.map(|_| ())
    }

    async fn alarms(
        &self,
        chamber: Option<&Chamber>,
        since: Timestamp,
        page: Option<&str>,
        limit: usize,
    ) -> Result<AlarmPage, StoreError> {
        alarms::list(&self.link, chamber, since, page, limit).await
    }

    async fn alarm(&self, id: &str) -> Result<Option<(Alarm, Option<Acknowledgement>)>, StoreError> {
        alarms::one(&self.link, id).await
    }

    async fn acknowledge(&self, alarm: &str, what: &Acknowledgement) -> Result<(), StoreError> {
        let at = CqlTimestamp(Time::from(what.at).ms);
        let row = (alarm, &*what.by, at, &*what.comment, microseconds(what.at));
        self.link.run(|s| &s.acknowledge, row).await.map(|_| ())
    }

    async fn metadata(&self) -> Result<Vec<Metadata>, StoreError> {
        let mut found = Vec::new();
        for page in self.link.pages(|s| &s.metadata).await? {
            for row in all::<MetadataRow>(page)? {
                found.push(row.read()?);
            }
        }
        found.sort_by(|a, b| a.chamber.cmp(&b.chamber));
        Ok(found)
    }

    async fn put_metadata(&self, chambers: &[Metadata]) -> Result<(), StoreError> {
        for metadata in chambers {
            signed("a weight", metadata.weight)?;
        }
        for some in chambers.chunks(METADATA_AT_ONCE) {
            try_join_all(some.iter().map(async |metadata| {
                let row = (
                    metadata.chamber.tool(),
                    metadata.chamber.chamber(),
                    i64::from(metadata.svid_count),
                    metadata.collection_freq_hz,
                    metadata.context_duration_seconds,
                    signed("a weight", metadata.weight)?,
                    CqlTimestamp(Time::from(metadata.last_updated).ms),
                );
                self.link.run(|s| &s.put_metadata, row).await.map(|_| ())
            }))
            .await?;
        }
        Ok(())
    }

    /// Deletes nothing: the tables have TTLs.
    async fn expire(&self, _now: Timestamp) -> Result<usize, StoreError> {
        Ok(0)
    }
}
