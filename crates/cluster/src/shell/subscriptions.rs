//! One bell for each partition: it says that there may be something to read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::backend_client::BackendClient;
use super::metrics::Metrics;
use super::problem::Problem;
use super::watches::Signal;
use crate::core::Event;

/// How long after a bell fell silent it is hung up again.
const RESUBSCRIBE_DELAY: Duration = Duration::from_millis(100);
/// With more bells than this, what comes while they are being hung up is left to the sweep.
const INITIAL_WAKE_UP_LIMIT: usize = 2000;

/// How bells are hung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionConfig {
    /// How long hanging one may take.
    pub timeout: Duration,
    /// How often it is tried. After the last time the sweep alone serves the partition.
    pub attempts: u32,
    /// How long is waited before the second try; that doubles.
    pub backoff: Duration,
}

impl Default for SubscriptionConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), attempts: 3, backoff: Duration::from_secs(2) }
    }
}

/// The bells that hang. Dropping them takes them down.
pub(super) struct WakeUpSubscriptions {
    broker: Arc<BackendClient>,
    config: SubscriptionConfig,
    metrics: Metrics,
    signals: mpsc::Sender<Signal>,
    tasks: JoinSet<()>,
    by_partition: HashMap<Arc<str>, AbortHandle>,
}

impl WakeUpSubscriptions {
    pub(super) fn new(
        broker: Arc<BackendClient>,
        config: SubscriptionConfig,
        metrics: Metrics,
        signals: mpsc::Sender<Signal>,
    ) -> Self {
        Self { broker, config, metrics, signals, tasks: JoinSet::new(), by_partition: HashMap::new() }
    }

    pub(super) fn open(&mut self, partition: &Arc<str>) {
        if self.broker.logs.is_none() || self.by_partition.contains_key(partition) {
            return;
        }
        let rings_first = self.by_partition.len() < INITIAL_WAKE_UP_LIMIT;
        let (broker, metrics, signals) = (self.broker.clone(), self.metrics.clone(), self.signals.clone());
        let listening =
            forward_wake_ups(broker, self.config, metrics, signals, partition.clone(), rings_first);
        // Tasks that ended before are done with.
        while self.tasks.try_join_next().is_some() {}
        self.by_partition.insert(partition.clone(), self.tasks.spawn(listening));
        self.metrics.all.subscriptions.set(self.by_partition.len() as i64);
    }

    pub(super) fn close(&mut self, partition: &Arc<str>) {
        if let Some(bell) = self.by_partition.remove(partition) {
            bell.abort();
            self.metrics.all.unsubscribed.inc();
            self.metrics.all.subscriptions.set(self.by_partition.len() as i64);
        }
    }

    pub(super) fn close_all(&mut self) {
        for partition in self.by_partition.keys().cloned().collect::<Vec<_>>() {
            self.close(&partition);
        }
    }
}

impl Drop for WakeUpSubscriptions {
    fn drop(&mut self) {
        self.close_all();
    }
}

async fn forward_wake_ups(
    broker: Arc<BackendClient>,
    config: SubscriptionConfig,
    metrics: Metrics,
    signals: mpsc::Sender<Signal>,
    partition: Arc<str>,
    mut rings: bool,
) {
    let Some((log, _)) = &broker.logs else { return };
    let subject = broker.config.subjects.subject(&partition);
    let mut tries = 0;
    while !signals.is_closed() {
        let timer = metrics.all.subscription_duration.start_timer();
        let opened = tokio::time::timeout(config.timeout, log.subscribe_wake_ups(&subject)).await;
        timer.observe_duration();
        let opened = match opened {
            Ok(opened) => opened.map_err(|error| error.to_string()),
            Err(_) => Err(format!("it took longer than {:?}", config.timeout)),
        };
        match opened {
            Ok(mut bell) => {
                tries = 0;
                metrics.all.subscribed.inc();
                // Something may have come before the bell hung.
                while !rings || signals.send(Signal::Event(Event::WakeUp(partition.clone()))).await.is_ok() {
                    rings = bell.recv().await;
                    if !rings {
                        break;
                    }
                }
                rings = true;
            }
            Err(reason) => {
                metrics.all.subscription_errors.inc();
                tries += 1;
                if tries >= config.attempts {
                    broker.hooks.report(Problem::SubscriptionFailed { partition, reason });
                    return;
                }
            }
        }
        // A bell that fell silent is hung up again soon; one that could not be hung waits longer each time.
        let wait = tries
            .checked_sub(1)
            .map_or(RESUBSCRIBE_DELAY, |before| config.backoff * 2_u32.pow(before.min(8)));
        tokio::time::sleep(wait).await;
    }
}
