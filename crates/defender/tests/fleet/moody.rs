//! A chart store that stops answering when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use phalanx_cluster::core::Position;
use phalanx_defender::record::{
    Acknowledgement, Alarm, Chamber, Context, Metadata, Results, StateRow, UChart,
};
use phalanx_defender::store::{AlarmPage, ChartStore, StoreError};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    /// It answers.
    Well,
    /// It refuses every connection.
    Away,
    /// It says nothing until its mood changes.
    Silent,
    /// It answers, but late.
    Slow(Duration),
}

pub(crate) struct Moody {
    inner: Arc<dyn ChartStore>,
    mood: watch::Sender<Mood>,
    reading: AtomicUsize,
    most: AtomicUsize,
    refused: AtomicUsize,
}

impl Moody {
    pub(crate) fn new(inner: Arc<dyn ChartStore>) -> Arc<Self> {
        let (mood, zero) = (watch::Sender::new(Mood::Well), AtomicUsize::new);
        Arc::new(Self { inner, mood, reading: zero(0), most: zero(0), refused: zero(0) })
    }

    pub(crate) fn be(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    /// How many questions were not answered.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// How many T-charts are being read, and how many were at most.
    pub(crate) fn reading(&self) -> (usize, usize) {
        (self.reading.load(Ordering::SeqCst), self.most.load(Ordering::SeqCst))
    }

    async fn ask(&self) -> Result<&dyn ChartStore, StoreError> {
        let mood = *self.mood.borrow();
        match mood {
            Mood::Well => {}
            Mood::Slow(delay) => tokio::time::sleep(delay).await,
            Mood::Away | Mood::Silent => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                if mood == Mood::Away {
                    return Err(StoreError::Unavailable("connection refused".to_owned()));
                }
                let _ = self.mood.subscribe().wait_for(|mood| *mood != Mood::Silent).await;
            }
        }
        Ok(&*self.inner)
    }
}

/// A read that is counted until it ends or is dropped.
struct Reading<'a>(&'a AtomicUsize);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl ChartStore for Moody {
    async fn ping(&self) -> Result<(), StoreError> {
        self.ask().await?.ping().await
    }

    async fn put_t_chart(
        &self,
        chamber: &Chamber,
        context: &str,
        chunks: &[Bytes],
    ) -> Result<(), StoreError> {
        // The way in is another process, and no part of what is looked at.
        self.inner.put_t_chart(chamber, context, chunks).await
    }

    async fn t_chart(&self, chamber: &Chamber, context: &str) -> Result<Option<Vec<Bytes>>, StoreError> {
        let reading = self.reading.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(reading, Ordering::SeqCst);
        let _reading = Reading(&self.reading);
        self.ask().await?.t_chart(chamber, context).await
    }

    async fn state_at(&self, chamber: &Chamber, position: Position) -> Result<Option<StateRow>, StoreError> {
        self.ask().await?.state_at(chamber, position).await
    }

    async fn newest_state(&self, chamber: &Chamber) -> Result<Option<StateRow>, StoreError> {
        self.ask().await?.newest_state(chamber).await
    }

    async fn u_charts(
        &self,
        chamber: &Chamber,
        indicator: &str,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<(UChart, Position, u64)>, StoreError> {
        self.ask().await?.u_charts(chamber, indicator, before, limit).await
    }

    async fn indicators(&self, chamber: &Chamber) -> Result<Vec<Arc<str>>, StoreError> {
        self.ask().await?.indicators(chamber).await
    }

    async fn contexts(
        &self,
        chamber: &Chamber,
        from: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Context>, StoreError> {
        self.ask().await?.contexts(chamber, from, limit).await
    }

    async fn write(&self, results: &Results) -> Result<(), StoreError> {
        self.ask().await?.write(results).await
    }

    async fn alarms(
        &self,
        chamber: Option<&Chamber>,
        since: Timestamp,
        page: Option<&str>,
        limit: usize,
    ) -> Result<AlarmPage, StoreError> {
        self.ask().await?.alarms(chamber, since, page, limit).await
    }

    async fn alarm(&self, id: &str) -> Result<Option<(Alarm, Option<Acknowledgement>)>, StoreError> {
        self.ask().await?.alarm(id).await
    }

    async fn acknowledge(&self, alarm: &str, what: &Acknowledgement) -> Result<(), StoreError> {
        self.ask().await?.acknowledge(alarm, what).await
    }

    async fn metadata(&self) -> Result<Vec<Metadata>, StoreError> {
        self.ask().await?.metadata().await
    }

    async fn put_metadata(&self, chambers: &[Metadata]) -> Result<(), StoreError> {
        self.ask().await?.put_metadata(chambers).await
    }

    async fn expire(&self, now: Timestamp) -> Result<usize, StoreError> {
        // The background task that calls it is not under test.
        self.inner.expire(now).await
    }
}
