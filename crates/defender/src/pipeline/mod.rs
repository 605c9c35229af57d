//! From a notification to rows and alarms: what stands around [`judge`].
//!
//! One message: what the chamber's charts remember at exactly the committed position, from the cache or the store → the
//! T-chart → decoded, evaluated and judged off the async threads → rows → alarms published → the cursor moves → the cache
//! counts. Everything is written before the cursor moves, and a message that comes again leaves the same rows again.

mod metrics;
mod remembering;
mod turn;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use phalanx_cluster::backend::{AppendCondition, Log};
use phalanx_cluster::core::types::{LogId, WriteTimestamp};
use phalanx_cluster::core::{Position, RecoveryPoint};
use phalanx_cluster::{Delivery, Failure, Handler, Unavailable};
use phalanx_service::Watchdog;
use serde::Deserialize;

pub use self::metrics::Metrics;
use self::remembering::Remembered;
use self::turn::Turn;
use crate::Observer;
use crate::cache::Cache;
use crate::judge::rows::Entry;
use crate::judge::{self, Remark, Verdict, alarm};
use crate::notification::{Message, Notification, check_context};
use crate::record::{Alarm, Chamber, Context, Mark, Outcome, Results};
use crate::store::{ChartStore, StoreError};
use crate::strategy::{Holder, Strategy};
use crate::traces::{TraceError, Traces};
use crate::weights::SharedEstimator;

/// How long the store or the broker may take to answer. They have limits of their own, which are shorter: this is for one
/// that hangs all the same, so that it does not hold a chamber for ever.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What the pipeline works with.
pub struct Parts {
    /// Where charts are kept.
    pub store: Arc<dyn ChartStore>,
    /// The strategy in force.
    pub strategy: Arc<Holder>,
    /// What is remembered.
    pub cache: Arc<Cache>,
    /// Where alarms are published.
    pub alarms: Arc<dyn Log>,
    /// Estimates of weights, made of the processed runs.
    pub estimator: SharedEstimator,
    /// Receiver of events.
    pub observer: Arc<dyn Observer>,
    /// How long store and broker may take to answer; usually [`PATIENCE`].
    pub patience: Duration,
    /// Who notices when a message gets stuck here.
    pub watchdog: Watchdog,
}

/// Processes the messages of chambers. Clones are the same pipeline.
#[derive(Clone)]
pub struct Pipeline {
    parts: Arc<Parts>,
    metrics: Metrics,
}

impl Pipeline {
    /// A pipeline that counts there.
    pub fn new(parts: Parts, metrics: Metrics) -> Self {
        Self { parts: Arc::new(parts), metrics }
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Asks the store, and does not count the wait.
    async fn read<T>(
        &self,
        delivery: &Turn,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Failure> {
        let timer = self.metrics.reads.start_timer();
        let answer = delivery.waiting(self.answered(question)).await;
        timer.observe_duration();
        self.blame(delivery, answer).await
    }

    /// What the store says, if it says something in time.
    async fn answered<T>(
        &self,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let patience = self.parts.patience;
        let late = |_| Err(StoreError::Unavailable(format!("no answer within {patience:?}")));
        tokio::time::timeout(patience, question).await.unwrap_or_else(late)
    }

    /// An error while the store answers otherwise is the message's; while it does not, nobody's.
    async fn blame<T>(&self, delivery: &Turn, answer: Result<T, StoreError>) -> Result<T, Failure> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(StoreError::Refused(reason)) => {
                Err(Failure::Retry(format!("the chart store refuses: {reason}")))
            }
            Err(StoreError::Unavailable(reason)) => {
                match delivery.waiting(self.answered(self.parts.store.ping())).await {
                    Ok(()) => Err(Failure::Retry(format!("the chart store: {reason}"))),
                    Err(_) => {
                        self.metrics.store_waits.inc();
                        Err(Failure::Unavailable)
                    }
                }
            }
        }
    }

    /// Reports something that an operator should know and no row says.
    fn report(&self, chamber: &Chamber, remark: &Remark) {
        self.parts.observer.problem(&format!("{chamber}, chart {}: {}", remark.indicator, remark.text));
    }

    /// What a run comes to.
    async fn run(
        &self,
        delivery: &Turn,
        notification: &Notification,
        strategy: &Arc<Strategy>,
        remembered: &Arc<Remembered>,
    ) -> Result<Verdict, Failure> {
        let (chamber, context) = (notification.chamber.clone(), notification.context.clone());
        if remembered.before.state.has_seen(&context) {
            return Ok(judge::unchanged(&chamber, &remembered.before.state, Outcome::Duplicate));
        }
        let charts = strategy.charts_for(&chamber);
        if charts.is_empty() {
            // Nobody looks at its traces, so nobody needs them.
            let run = judge::Run {
                chamber: &chamber,
                context: &context,
                timestamp: notification.timestamp,
                position: delivery.position,
                strategy: strategy.version(),
                values: &[],
            };
            return Ok(judge::judge(run, &charts, &remembered.before.state, &remembered.history));
        }
        let question = self.parts.store.t_chart(&chamber, &context);
        let chunks = self.read(delivery, question).await?.ok_or_else(|| {
            Failure::Retry(format!("the T-chart {} is not in the store", notification.t_chart_key()))
        })?;
        let (strategy, remembered) = (strategy.version().clone(), remembered.clone());
        let (timestamp, position) = (notification.timestamp, delivery.position);
        let calculated = tokio::task::spawn_blocking({
            let (chamber, metrics) = (chamber.clone(), self.metrics.clone());
            // It goes on when its message is given up for being late, and occupies a thread until it ends.
            let beat = self.parts.watchdog.watch(&format!("the calculation of {chamber} {context}"));
            move || -> Result<_, TraceError> {
                let _beat = beat;
                let began = Instant::now();
                let traces = Traces::decode(&chunks, charts.svids())?;
                let values = traces.evaluate(&charts);
                let run = judge::Run {
                    chamber: &chamber,
                    context: &context,
                    timestamp,
                    position,
                    strategy: &strategy,
                    values: &values,
                };
                let verdict = judge::judge(run, &charts, &remembered.before.state, &remembered.history);
                metrics.calculation.observe(began.elapsed().as_secs_f64());
                Ok((verdict, RunSize::of(&traces)))
            }
        });
        match calculated.await {
            Ok(Ok((verdict, size))) => {
                self.parts.estimator.lock().observe(&chamber, size.svids, size.values, size.duration);
                Ok(verdict)
            }
            Ok(Err(error)) => Err(Failure::Poison(error.to_string())),
            Err(panic) => Err(Failure::Retry(format!("the calculation failed: {panic}"))),
        }
    }

    /// Writes what a message comes to, and publishes the alarms that it raised or cleared.
    async fn keep(&self, delivery: &Turn, results: &Results) -> Result<(), Failure> {
        if !delivery.may_write() {
            return Err(Failure::Unavailable);
        }
        let timer = self.metrics.writes.start_timer();
        let written = delivery.waiting(self.answered(self.parts.store.write(results))).await;
        timer.observe_duration();
        self.blame(delivery, written).await?;
        for news in news(results) {
            if !delivery.may_write() {
                return Err(Failure::Unavailable);
            }
            let (subject, id) = (alarm::subject(&results.chamber), alarm::message_id(news));
            let payload = alarm::alarm_json(news).to_string();
            let publish = self.parts.alarms.append(&subject, payload.into(), AppendCondition::NewId(&id));
            let publish = tokio::time::timeout(self.parts.patience, publish);
            // An error of the broker is no fault of the message.
            let Ok(Ok(published)) = delivery.waiting(publish).await else { return Err(Failure::Unavailable) };
            if !published.duplicate {
                self.metrics.alarm(news);
            }
            self.parts.observer.alarm(news);
        }
        self.metrics.outcome(results.context.outcome);
        self.parts.cache.stage(results);
        Ok(())
    }
}

/// The alarms that the message itself raised or cleared. One without effect did neither, though the run that raised an
/// alarm may come again while it is active.
fn news(results: &Results) -> impl Iterator<Item = &Alarm> {
    let Context { context, outcome, .. } = &results.context;
    let has_effect = !matches!(outcome, Outcome::Duplicate | Outcome::Dead);
    results.alarms.iter().filter(move |alarm| has_effect && alarm::is_news(alarm, context))
}

/// The message, as its rows name it.
fn entry(
    delivery: &Delivery,
    chamber: Chamber,
    context: Arc<str>,
    at: Timestamp,
    strategy: Arc<str>,
) -> Entry {
    Entry {
        chamber,
        mark: Mark {
            position: delivery.position,
            take: delivery.fencing_token.0,
            stamp: delivery.write_timestamp.0,
        },
        predecessor: delivery.committed,
        stream: delivery.log_id.map_or(0, |log| log.0),
        context,
        timestamp: at,
        strategy,
    }
}

/// Size of a run, for the estimate of its chamber's weight.
struct RunSize {
    svids: u32,
    /// Number of values in all traces together.
    values: u64,
    /// Time from the first value to the last.
    duration: Duration,
}

impl RunSize {
    fn of(traces: &Traces) -> Self {
        let micros = traces.end().saturating_sub(traces.start());
        Self {
            svids: u32::try_from(traces.svids()).unwrap_or(u32::MAX),
            values: traces.points(),
            duration: Duration::from_micros(micros.max(0).unsigned_abs()),
        }
    }
}

/// The chamber of a partition. One whose name is no chamber's has no business in this log.
fn chamber_of(partition: &str) -> Result<Chamber, Failure> {
    Chamber::of_partition(partition)
        .ok_or_else(|| Failure::Poison(format!("{partition} is not of the form tool:chamber")))
}

#[async_trait]
impl Handler for Pipeline {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let delivery = Turn::new(delivery, &self.parts.watchdog);
        let chamber = chamber_of(&delivery.partition)?;
        let message = Message::parse(&delivery.payload, &chamber)
            .map_err(|error| Failure::Poison(error.to_string()))?;
        let remembered = Arc::new(self.remembered(&delivery, &chamber).await?);
        let strategy = self.parts.strategy.current();
        let verdict = match &message {
            Message::Rebaseline(command) => {
                judge::rebaseline(command, delivery.position, &remembered.before.state)
            }
            Message::Completed(notification) => {
                self.run(&delivery, notification, &strategy, &remembered).await?
            }
        };
        for remark in &verdict.remarks {
            self.report(&chamber, remark);
        }
        let (context, at) = (message.context().clone(), message.timestamp());
        let entry = entry(&delivery, chamber, context, at, strategy.version().clone());
        self.keep(&delivery, &entry.results(&remembered.before, verdict)).await
    }

    fn message_id(&self, payload: &[u8]) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Named {
            context_id: String,
        }
        // What is no id is none: it would become part of keys and rows.
        let named = serde_json::from_slice::<Named>(payload).ok()?;
        check_context(&named.context_id).is_ok().then_some(named.context_id)
    }

    async fn recovery_point(&self, partition: &str) -> Result<Option<RecoveryPoint>, Unavailable> {
        let Some(chamber) = Chamber::of_partition(partition) else { return Ok(None) };
        let store = &self.parts.store;
        let Some(newest) = store.newest_state(&chamber).await.map_err(|_| Unavailable)? else {
            return Ok(None);
        };
        let before = match newest.predecessor {
            Some(before) => store.state_at(&chamber, before).await.map_err(|_| Unavailable)?,
            None => None,
        };
        Ok(Some(RecoveryPoint {
            newest: newest.mark.position,
            predecessor: newest.predecessor,
            message_id: before.as_ref().map(|row| row.context.clone()),
            log_id: before.map(|row| LogId(row.stream)).filter(|log| *log != LogId(0)),
            write_timestamp: WriteTimestamp(newest.mark.written_at()),
        }))
    }

    async fn record_dead_letter(&self, delivery: Delivery, _reason: &str) -> Result<(), Unavailable> {
        let Some(chamber) = Chamber::of_partition(&delivery.partition) else { return Ok(()) };
        let delivery = Turn::new(delivery, &self.parts.watchdog);
        let (context, at) = match Message::parse(&delivery.payload, &chamber) {
            Ok(message) => (message.context().clone(), message.timestamp()),
            // What cannot be read has no time of its own: the broker's is the same whoever asks.
            Err(_) => {
                let at = i64::try_from(delivery.stored_at)
                    .ok()
                    .and_then(|us| Timestamp::from_microsecond(us).ok());
                (delivery.message_id.clone(), at.unwrap_or_default())
            }
        };
        let before = self.before(&delivery, &chamber).await.map_err(|_| Unavailable)?;
        let strategy = self.parts.strategy.current().version().clone();
        let results = entry(&delivery, chamber, context, at, strategy).bury(&before);
        self.keep(&delivery, &results).await.map_err(|_| Unavailable)
    }

    fn committed(&self, partition: &str, position: Position) {
        if let Some(chamber) = Chamber::of_partition(partition) {
            self.parts.cache.commit(&chamber, position);
            self.parts.observer.committed(&chamber, position);
            self.metrics.show_cache(&self.parts.cache.statistics(Instant::now()));
        }
    }
}
