//! One chamber with a few charts of its own, and everything that becomes of its messages.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::backend::{AppendCondition, Backend, Embedded, Log, Stores};
use phalanx_defender::Observer;
use phalanx_defender::collector::Collected;
use phalanx_defender::notification::Notification;
use phalanx_defender::record::{Alarm, Chamber, Context, Metadata, UChart};
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::traces::{EncodedTraces, Recording};
use phalanx_defender::worker::{Defender, Options};
use serde_json::Value;
use tempfile::TempDir;

use super::moody::Moody;
use super::options;
use phalanx_testkit::wait::until_async;

pub(crate) const STRATEGY: &str = r#"
[[group]]
tools = ["etch-*"]

[[group.chart]]
name = "power"
equation = "mean(RF_POWER)"
limits = { lcl = 480, ucl = 520 }
rules = [{ rule = "limits", severity = "critical" }, { rule = "nelson-2", severity = "warning" }]

[[group.chart]]
name = "learned"
equation = "mean(RF_POWER)"
limits = { baseline = 5 }
rules = []

[[group.chart]]
name = "gas"
equation = "mean(GAS)"
limits = { lcl = 0, ucl = 1 }
rules = [{ rule = "limits", severity = "critical" }]
"#;

pub(crate) struct Line {
    pub(crate) folder: TempDir,
    pub(crate) backend: Arc<Embedded>,
    pub(crate) moody: Arc<Moody>,
    pub(crate) store: Arc<dyn ChartStore>,
    pub(crate) stores: Stores,
    pub(crate) alarms: Arc<dyn Log>,
    pub(crate) defender: Defender,
    pub(crate) chamber: Chamber,
    pub(crate) told: Arc<Told>,
}

/// What an observer was told.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) problems: Mutex<Vec<String>>,
    pub(crate) alarms: Mutex<Vec<Alarm>>,
    pub(crate) strategies: Mutex<Vec<(String, String)>>,
}

impl Observer for Told {
    fn alarm(&self, alarm: &Alarm) {
        self.alarms.lock().unwrap().push(alarm.clone());
    }

    fn problem(&self, text: &str) {
        self.problems.lock().unwrap().push(text.to_owned());
    }

    fn strategy(&self, from: &str, to: &str) {
        self.strategies.lock().unwrap().push((from.to_owned(), to.to_owned()));
    }
}

impl Told {
    pub(crate) fn problem_with(&self, text: &str) -> bool {
        self.problems.lock().unwrap().iter().any(|problem| problem.contains(text))
    }
}

pub(crate) fn listed(chamber: &Chamber) -> Metadata {
    Metadata {
        chamber: chamber.clone(),
        svid_count: 1,
        collection_freq_hz: 1.0,
        context_duration_seconds: 2.0,
        weight: 2,
        last_updated: Timestamp::UNIX_EPOCH,
    }
}

/// The traces of a run whose power is always the same.
pub(crate) fn traces(power: f64) -> EncodedTraces {
    let csv = format!("time,RF_POWER\n0,{power}\n1000000,{power}\n");
    Recording::from_csv(csv.as_bytes()).unwrap().to_chunks().unwrap()
}

pub(crate) fn at(minute: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minute)
}

impl Line {
    pub(crate) async fn start(options: Options) -> Self {
        Self::with(STRATEGY, options).await
    }

    pub(crate) async fn with(strategy: &str, options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
        let moody = Moody::new(store.clone());
        let backend = Arc::new(Embedded::in_memory().unwrap());
        let chamber = Chamber::new("etch-01", "A").unwrap();
        store.put_metadata(&[listed(&chamber)]).await.unwrap();
        let told = Arc::new(Told::default());
        let stores = Stores::open(&*backend, &options.settings).await.unwrap();
        let alarms = backend.log(&options.alarms).await.unwrap();
        let holder = Arc::new(Holder::new(Strategy::parse(strategy).unwrap()));
        let meeting: Arc<dyn Backend> = backend.clone();
        let defender = Defender::start(meeting, moody.clone(), holder, told.clone(), options).await.unwrap();
        Self { folder, backend, moody, store, stores, alarms, defender, chamber, told }
    }

    pub(crate) async fn usual() -> Self {
        Self::start(options(1)).await
    }

    pub(crate) async fn send(&self, context: &str, minute: i64, power: f64) -> Collected {
        self.defender.collector().submit(&self.chamber, context, at(minute), &traces(power)).await.unwrap()
    }

    /// Tells the chamber of a run, whether its traces are there or not.
    pub(crate) async fn notify(&self, context: &str, minute: i64) -> u64 {
        let notification = Notification::new(self.chamber.clone(), context, at(minute)).unwrap();
        self.publish(notification.to_json()).await
    }

    /// Puts anything into the chamber's log.
    pub(crate) async fn publish(&self, payload: impl Into<Bytes>) -> u64 {
        let subject = "dc.etch-01.A.completed";
        let log = &self.stores.log;
        log.append(subject, payload.into(), AppendCondition::None).await.unwrap().sequence
    }

    pub(crate) async fn cursor(&self) -> Option<Value> {
        let entry = self.stores.cursors.get("etch-01.A").await.unwrap()?;
        Some(serde_json::from_slice(&entry.value).unwrap())
    }

    /// Waits until the message of that place is committed, or dead.
    pub(crate) async fn settled(&self, sequence: u64) {
        until_async(&format!("message {sequence} is settled"), async || {
            (self.cursor().await?["sequence"].as_u64()? >= sequence).then_some(())
        })
        .await;
    }

    /// The rows of the messages, the oldest first.
    pub(crate) async fn contexts(&self) -> Vec<Context> {
        let mut contexts = self.store.contexts(&self.chamber, None, 10_000).await.unwrap();
        contexts.reverse();
        contexts
    }

    /// The points of a chart, the oldest first.
    pub(crate) async fn points(&self, chart: &str) -> Vec<UChart> {
        let rows = self.store.u_charts(&self.chamber, chart, None, 10_000).await.unwrap();
        rows.into_iter().rev().map(|(row, ..)| row).collect()
    }

    pub(crate) async fn state(&self) -> Vec<u8> {
        self.store.newest_state(&self.chamber).await.unwrap().unwrap().state
    }

    pub(crate) async fn dead_letters(&self) -> Vec<Value> {
        all(&*self.stores.dead_letters).await
    }

    pub(crate) async fn published_alarms(&self) -> Vec<Value> {
        all(&*self.alarms).await
    }
}

/// Everything in a log.
async fn all(log: &dyn Log) -> Vec<Value> {
    let mut found = Vec::new();
    for subject in log.subjects().await.unwrap().keys() {
        for message in log.read(subject, 1, 10_000).await.unwrap() {
            found.push((message.sequence, serde_json::from_slice(&message.payload).unwrap()));
        }
    }
    found.sort_by_key(|(sequence, _)| *sequence);
    found.into_iter().map(|(_, letter)| letter).collect()
}
