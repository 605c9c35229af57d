//! The thread that writes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::config::Brake;
use super::coordinator;
use super::task;
use crate::core::broker::Load;
use crate::source::Done;
use crate::store::{Commit, Error, Moved, Writer};

/// How long a transaction may gather.
const GATHER: Duration = Duration::from_millis(50);

pub(super) enum Message {
    Commit(Box<Commit>, Option<Ack>),
    MacroMoved(Moved, Duration),
    BeginRun { provider: String, source: String, at: Duration, reply: SyncSender<Begun> },
}

/// A run that has begun, and where it goes on reading.
pub(super) struct Begun {
    pub(super) run_id: String,
    pub(super) cursor: Option<String>,
}

/// Tells a provider that a batch of its is written.
pub(super) struct Ack {
    pub(super) in_flight: Arc<AtomicU32>,
    pub(super) wake: SyncSender<task::Message>,
    /// How far the source is read with this batch.
    pub(super) done: Option<Done>,
}

/// The way to the writer, and what was measured of it.
#[derive(Clone)]
pub(super) struct Queue {
    sender: SyncSender<Message>,
    meter: Arc<Meter>,
    len: usize,
}

/// What is measured of the queue.
#[derive(Default)]
pub(super) struct Meter {
    waiting: AtomicUsize,
    /// Write latency per record, with how many records had it.
    latencies: Mutex<Vec<(Duration, u64)>>,
    /// The last event the macro machine has taken.
    events_handled: AtomicI64,
}

impl Meter {
    /// The macro machine has taken every event up to `seq`.
    pub(super) fn handled(&self, seq: i64) {
        self.events_handled.fetch_max(seq, Ordering::Relaxed);
    }

    pub(super) fn events_handled(&self) -> i64 {
        self.events_handled.load(Ordering::Relaxed)
    }
}

impl Queue {
    pub(super) fn new(len: usize) -> (Self, Receiver<Message>) {
        let (sender, receiver) = sync_channel(len);
        (Self { sender, meter: Arc::default(), len }, receiver)
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
            saturation: waiting.min(self.len) as f64 / self.len.max(1) as f64,
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

/// Writes until every sender is gone, and gives the store back.
pub(super) fn run(
    mut writer: Writer,
    meter: &Meter,
    receiver: &Receiver<Message>,
    coordinator: &Sender<coordinator::Message>,
    brake: Option<&Brake>,
) -> Result<Writer, Error> {
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
                    if let Some(brake) = brake {
                        commit.entries.iter().for_each(|_| brake());
                    }
                    let counts = batch.add(&commit)?;
                    records += counts.read;
                    if !reports.contains_key(&commit.provider) {
                        order.push(commit.provider.clone());
                    }
                    let report = reports.entry(commit.provider).or_default();
                    report.counts += counts;
                    if !commit.events.is_empty() {
                        report.last_event = batch.last_event()?;
                        report.events.extend(commit.events);
                    }
                    report.done = ack.as_ref().and_then(|ack| ack.done).or(report.done);
                    acks.extend(ack);
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
        batch.events_handled(meter.events_handled())?;
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
            let cursor = writer.cursor(&provider, &source)?;
            let _ = reply.send(Begun { run_id: writer.begin_run(&provider, &source, at)?, cursor });
        }
    }
    Ok(writer)
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
