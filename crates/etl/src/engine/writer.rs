//! The thread that writes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::coordinator;
use super::task;
use crate::core::broker::Load;
use crate::store::{Commit, Error, Moved, Writer};

/// More than the permits of the pool, so that a full house of batches does not look like a jam.
const QUEUE_LEN: usize = 16;
/// How long a transaction may gather.
const GATHER: Duration = Duration::from_millis(50);

pub(super) enum Message {
    Commit(Box<Commit>, Option<Ack>),
    MacroMoved(Moved, Duration),
    BeginRun { provider: String, source: String, at: Duration, reply: SyncSender<String> },
}

/// Tells a provider that a batch of its is written.
pub(super) struct Ack {
    pub(super) in_flight: Arc<AtomicU32>,
    pub(super) wake: SyncSender<task::Message>,
}

/// The way to the writer, and what was measured of it.
#[derive(Clone)]
pub(super) struct Queue {
    sender: SyncSender<Message>,
    meter: Arc<Meter>,
}

/// What is measured of the queue.
#[derive(Default)]
pub(super) struct Meter {
    waiting: AtomicUsize,
    /// Write latency per record, with how many records had it.
    latencies: Mutex<Vec<(Duration, u64)>>,
}

impl Queue {
    pub(super) fn new() -> (Self, Receiver<Message>) {
        let (sender, receiver) = sync_channel(QUEUE_LEN);
        (Self { sender, meter: Arc::default() }, receiver)
    }

    pub(super) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// Waits while the queue is full; `false` when the writer is gone.
    pub(super) fn send(&self, message: Message) -> bool {
        self.meter.waiting.fetch_add(1, Ordering::Relaxed);
        self.sender.send(message).is_ok()
    }

    /// What was measured since the last call.
    pub(super) fn load(&self) -> Load {
        let latencies =
            self.meter.latencies.lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default();
        let waiting = self.meter.waiting.load(Ordering::Relaxed);
        Load {
            write_latency_p99: p99(latencies),
            saturation: waiting.min(QUEUE_LEN) as f64 / QUEUE_LEN as f64,
        }
    }
}

/// The 99th percentile over records, not over transactions: healthy bulk loading has long transactions.
fn p99(mut latencies: Vec<(Duration, u64)>) -> Option<Duration> {
    latencies.sort_unstable();
    let records: u64 = latencies.iter().map(|(_, records)| records).sum();
    let mut above = records / 100;
    while let Some((latency, records)) = latencies.pop() {
        if records > above {
            return Some(latency);
        }
        above -= records;
    }
    None
}

/// Writes until every sender is gone.
pub(super) fn run(
    mut writer: Writer,
    meter: &Meter,
    receiver: &Receiver<Message>,
    coordinator: &Sender<coordinator::Message>,
) -> Result<(), Error> {
    while let Ok(first) = receiver.recv() {
        let start = Instant::now();
        let mut next = Some(first);
        let mut reports: HashMap<String, coordinator::Written> = HashMap::new();
        let mut order = Vec::new();
        let mut acks = Vec::new();
        let mut records = 0;
        let mut begin = None;
        let mut batch = writer.batch()?;
        while let Some(message) = next.take() {
            meter.waiting.fetch_sub(1, Ordering::Relaxed);
            match message {
                Message::Commit(commit, ack) => {
                    let counts = batch.add(&commit)?;
                    records += counts.read;
                    acks.extend(ack);
                    if !reports.contains_key(&commit.provider) {
                        order.push(commit.provider.clone());
                    }
                    let report = reports.entry(commit.provider).or_default();
                    report.counts += counts;
                    report.events.extend(commit.events);
                    report.ended = commit.ended.or(report.ended.take());
                }
                Message::MacroMoved(moved, at) => batch.macro_moved(&moved, at)?,
                Message::BeginRun { provider, source, at, reply } => {
                    begin = Some((provider, source, at, reply));
                    break;
                }
            }
            if start.elapsed() < GATHER {
                next = receiver.try_recv().ok();
            }
        }
        batch.commit()?;
        if records > 0
            && let Ok(mut latencies) = meter.latencies.lock()
        {
            latencies.push((start.elapsed().div_f64(records as f64), records));
        }
        for ack in acks {
            ack.in_flight.fetch_sub(1, Ordering::Release);
            // A full queue wakes its owner anyway.
            let _ = ack.wake.try_send(task::Message::Wake);
        }
        for provider in order {
            if let Some(report) = reports.remove(&provider) {
                let _ = coordinator.send(coordinator::Message::Written(provider, report));
            }
        }
        if let Some((provider, source, at, reply)) = begin {
            let _ = reply.send(writer.begin_run(&provider, &source, at)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_percentile_counts_records_and_not_transactions() {
        assert_eq!(p99(vec![]), None);
        assert_eq!(p99(vec![(ms(1), 1000), (ms(500), 5)]), Some(ms(1)));
        assert_eq!(p99(vec![(ms(1), 100), (ms(500), 5)]), Some(ms(500)));
    }
}
