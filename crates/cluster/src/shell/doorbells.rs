//! One bell for each partition: it says that there may be something to read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;

use super::broker::Broker;
use super::metrics::Metrics;
use super::problem::Problem;
use super::watching::Signal;
use crate::core::Event;

/// How often a bell is tried, and how long is waited before the second time; that doubles.
const TRIES: u32 = 5;
const AGAIN: Duration = Duration::from_millis(100);
/// With more bells than this, what comes while they are being hung up is left to the sweep.
const MANY: usize = 2000;

/// The bells that hang. Dropping them takes them down.
pub(super) struct Doorbells {
    broker: Arc<Broker>,
    metrics: Metrics,
    signals: UnboundedSender<Signal>,
    bells: HashMap<Arc<str>, AbortHandle>,
}

impl Doorbells {
    pub(super) fn new(broker: Arc<Broker>, metrics: Metrics, signals: UnboundedSender<Signal>) -> Self {
        Self { broker, metrics, signals, bells: HashMap::new() }
    }

    pub(super) fn open(&mut self, partition: &Arc<str>) {
        if self.broker.logs.is_none() || self.bells.contains_key(partition) {
            return;
        }
        let rings_first = self.bells.len() < MANY;
        let (broker, metrics, signals) = (self.broker.clone(), self.metrics.clone(), self.signals.clone());
        let listening = listen(broker, metrics, signals, partition.clone(), rings_first);
        self.bells.insert(partition.clone(), tokio::spawn(listening).abort_handle());
        self.metrics.all.subscriptions.set(self.bells.len() as i64);
    }

    pub(super) fn close(&mut self, partition: &Arc<str>) {
        if let Some(bell) = self.bells.remove(partition) {
            bell.abort();
            self.metrics.all.unsubscribed.inc();
            self.metrics.all.subscriptions.set(self.bells.len() as i64);
        }
    }

    pub(super) fn close_all(&mut self) {
        for partition in self.bells.keys().cloned().collect::<Vec<_>>() {
            self.close(&partition);
        }
    }
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        self.close_all();
    }
}

async fn listen(
    broker: Arc<Broker>,
    metrics: Metrics,
    signals: UnboundedSender<Signal>,
    partition: Arc<str>,
    mut rings: bool,
) {
    let Some((log, _)) = &broker.logs else { return };
    let subject = broker.subjects.of(&partition);
    let mut tries = 0;
    while !signals.is_closed() {
        let timer = metrics.all.subscription_duration.start_timer();
        let opened = log.doorbell(&subject).await;
        timer.observe_duration();
        match opened {
            Ok(mut bell) => {
                tries = 0;
                metrics.all.subscribed.inc();
                // Something may have come before the bell hung.
                while !rings || signals.send(Signal::Event(Event::Rung(partition.clone()))).is_ok() {
                    rings = bell.rung().await;
                    if !rings {
                        break;
                    }
                }
                rings = true;
            }
            Err(error) => {
                metrics.all.subscription_errors.inc();
                tries += 1;
                if tries >= TRIES {
                    let reason = error.to_string();
                    broker.hooks.report(Problem::Doorbell { partition, reason });
                    return;
                }
            }
        }
        tokio::time::sleep(AGAIN * 2_u32.pow(tries)).await;
    }
}
