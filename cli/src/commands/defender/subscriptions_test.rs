//! The variables of doorbells, on a backend where none can be hung: a real one gives no occasion to try twice.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use phalanx_cluster::backend::{
    AppendCondition, Appended, Backend, BucketConfig, Embedded, Error, Kv, Log, LogConfig, LogInfo, Message,
    StoreKind, WakeUpSubscription,
};
use phalanx_defender::Observer;
use phalanx_defender::store::{ChartStore as _, Sqlite};
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::weights;
use phalanx_defender::worker::Defender;

use super::config::tests::planned;

/// As the embedded one, but a doorbell is never hung.
#[derive(Clone)]
struct NoSubscriptions {
    inner: Arc<Embedded>,
    /// When it was tried.
    tried: Arc<Mutex<Vec<Instant>>>,
}

#[async_trait]
impl Backend for NoSubscriptions {
    async fn bucket(&self, config: &BucketConfig) -> Result<Arc<dyn Kv>, Error> {
        self.inner.bucket(config).await
    }

    async fn log(&self, config: &LogConfig) -> Result<Arc<dyn Log>, Error> {
        Ok(Arc::new(NoSubscriptionsLog(self.inner.log(config).await?, self.clone())))
    }

    async fn description(&self, kind: StoreKind, name: &str) -> Result<String, Error> {
        self.inner.description(kind, name).await
    }

    async fn describe(&self, kind: StoreKind, name: &str, description: &str) -> Result<(), Error> {
        self.inner.describe(kind, name, description).await
    }
}

struct NoSubscriptionsLog(Arc<dyn Log>, NoSubscriptions);

#[async_trait]
impl Log for NoSubscriptionsLog {
    async fn append(
        &self,
        subject: &str,
        payload: Bytes,
        expect: AppendCondition<'_>,
    ) -> Result<Appended, Error> {
        self.0.append(subject, payload, expect).await
    }

    async fn read(&self, subject: &str, from: u64, limit: usize) -> Result<Vec<Message>, Error> {
        self.0.read(subject, from, limit).await
    }

    async fn next(&self, subject: &str, from: u64) -> Result<Option<Message>, Error> {
        self.0.next(subject, from).await
    }

    async fn last(&self, subject: &str) -> Result<Option<Message>, Error> {
        self.0.last(subject).await
    }

    async fn remove(&self, sequence: u64) -> Result<bool, Error> {
        self.0.remove(sequence).await
    }

    async fn info(&self) -> Result<LogInfo, Error> {
        self.0.info().await
    }

    async fn subjects(&self) -> Result<BTreeMap<String, u64>, Error> {
        self.0.subjects().await
    }

    async fn subscribe_wake_ups(&self, _: &str) -> Result<WakeUpSubscription, Error> {
        self.1.tried.lock().unwrap().push(Instant::now());
        pending().await
    }
}

/// Passes on what a person should know.
struct Told(tokio::sync::mpsc::UnboundedSender<String>);

impl Observer for Told {
    fn problem(&self, text: &str) {
        let _ = self.0.send(text.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doorbell_is_tried_as_often_as_long_and_as_far_apart_as_the_variables_say() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let plan = planned(&[
        ("DATA_DIR", &data),
        ("SUBSCRIPTION_UPDATE_TIMEOUT_SECONDS", "0.2"),
        ("SUBSCRIPTION_RETRY_ATTEMPTS", "4"),
        ("SUBSCRIPTION_BACKOFF_SECONDS", "0.1"),
    ])
    .unwrap();
    let store = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
    let list = "tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\netch-01,A,1,1,1\n";
    store.put_metadata(&weights::import(list, Timestamp::now()).unwrap()).await.unwrap();
    let backend = NoSubscriptions { inner: Arc::new(Embedded::in_memory().unwrap()), tried: Arc::default() };
    let strategy = Arc::new(Holder::new(Strategy::parse(phalanx_fab::STRATEGY).unwrap()));
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let _defender =
        Defender::start(Arc::new(backend.clone()), store, strategy, Arc::new(Told(tell)), plan.options)
            .await
            .unwrap();
    let given_up = loop {
        let problem = told.recv().await.unwrap();
        if problem.contains("doorbell") {
            break problem;
        }
    };
    assert!(given_up.contains("it took longer than 200ms"), "{given_up}");
    let tried = backend.tried.lock().unwrap().clone();
    assert_eq!(tried.len(), 4);
    // Each try takes the time it may, and the pause before the next doubles.
    for (pair, least) in tried.windows(2).zip([300, 400, 600].map(Duration::from_millis)) {
        let apart = pair[1] - pair[0];
        assert!(
            apart >= least && apart < least + Duration::from_millis(1500),
            "{apart:?} instead of {least:?}"
        );
    }
}
