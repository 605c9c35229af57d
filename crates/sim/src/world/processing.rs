//! Messages that are being processed, and the store that their results are written to.

use std::time::Duration;

use phalanx_cluster_core::{Effect, Event, ProcessOutcome, ReadError, RequestId};

use crate::broker::{MessageKind, decode};
use crate::event::{ProcessingStep, ScheduledAction, SimEvent};
use crate::fleet::ProcessId;
use crate::handler::{Handler, Lookup, ProcessingRun};
use crate::network::LATENCY;
use crate::rules::EnvironmentRule;
use crate::store::{Results, STORE_TIMEOUT, StoreWrite};
use crate::world::World;

impl World {
    /// Drops all messages that a process is processing.
    pub(super) fn drop_runs(&mut self, process: ProcessId) {
        let handler = &mut self.fleet.get_mut(process).handler;
        let partitions: Vec<u32> = handler.runs.keys().copied().collect();
        handler.drop_all();
        for partition in partitions {
            self.oracle.on_processing_ended(process, partition);
        }
    }

    pub(super) fn begin_run(&mut self, process: ProcessId, partition: u32, mut run: ProcessingRun) {
        let now = self.now;
        self.oracle.on_processing_started(now, process, partition, &run.work);
        let (_, kind) = decode(&run.work.message.payload);
        let request_id = run.request_id;
        let milliseconds = Duration::from_millis;
        let (wait, step) = match kind {
            MessageKind::CrashesWorker => (milliseconds(100), ProcessingStep::Crash),
            MessageKind::Poison => (milliseconds(10), ProcessingStep::Poison),
            MessageKind::Flaky(times) if run.work.attempt <= u32::from(times) => {
                (milliseconds(50), ProcessingStep::Fail)
            }
            MessageKind::NeverEnds => (self.setup.config.process_timeout, ProcessingStep::TimeOut),
            MessageKind::Good | MessageKind::Flaky(_) => {
                (self.traffic.processing_time(), ProcessingStep::Store)
            }
        };
        if self.store.is_down(now) {
            self.oracle.on_processing_ended(process, partition);
            let event = Event::Processed { request_id, outcome: ProcessOutcome::Unavailable };
            self.later(STORE_TIMEOUT, SimEvent::Arrival(process, event));
            return;
        }
        let handler = &mut self.fleet.get_mut(process).handler;
        if run.work.ignore_cache {
            handler.forget(partition);
        }
        // The handler reads its state at the start, and writes the results at the end.
        if matches!(step, ProcessingStep::Store) {
            let is_exact = self.setup.enforces(EnvironmentRule::StateAtCommitted);
            let lookup = if is_exact { Lookup::Exact } else { Lookup::Newest };
            let strategy = self.store.strategy();
            run.results = handler.compute(partition, &run.work, strategy, lookup, &self.store.rows);
            if run.results.is_none() {
                self.oracle.missing_state(now, process, partition, run.work.committed);
            }
        }
        self.fleet.get_mut(process).handler.runs.insert(partition, run);
        self.later(wait, SimEvent::Step(process, partition, request_id, step));
    }

    pub(super) fn step(
        &mut self,
        process: ProcessId,
        partition: u32,
        request_id: RequestId,
        step: ProcessingStep,
    ) {
        let now = self.now;
        let target = self.fleet.get_mut(process);
        if !target.is_alive {
            return;
        }
        if target.is_stopped {
            target.pending_events.push(SimEvent::Step(process, partition, request_id, step));
            return;
        }
        if target.handler.runs.get(&partition).is_none_or(|run| run.request_id != request_id) {
            return;
        }
        // A handler is polled only while its worker is unfenced.
        if target.worker.is_fenced(target.clock(now)) {
            target.handler.runs.remove(&partition);
            self.oracle.on_processing_ended(process, partition);
            return;
        }
        let outcome = match step {
            ProcessingStep::Crash => {
                self.kill(process);
                self.plan(Duration::from_secs(3), ScheduledAction::Start);
                return;
            }
            ProcessingStep::Store => {
                self.send_rows(process, partition);
                return;
            }
            ProcessingStep::Fail => ProcessOutcome::Failed("it fails".into()),
            ProcessingStep::Poison => ProcessOutcome::Poison("it is broken".into()),
            ProcessingStep::TimeOut => ProcessOutcome::Failed("it took too long".into()),
        };
        target.handler.runs.remove(&partition);
        self.oracle.on_processing_ended(process, partition);
        self.later(Duration::ZERO, SimEvent::Arrival(process, Event::Processed { request_id, outcome }));
    }

    fn send_rows(&mut self, process: ProcessId, partition: u32) {
        let now = self.now;
        let target = self.fleet.get_mut(process);
        if !target.lost_time {
            self.oracle.check_fence(now, process, "writes rows");
        }
        let Some(run) = target.handler.runs.remove(&partition) else { return };
        self.oracle.on_processing_ended(process, partition);
        let request_id = run.request_id;
        let outcome = match (run.results, self.store.write_path(now)) {
            (Some(results), StoreWrite::Late(lag)) => {
                self.later(lag, SimEvent::Rows(Box::new(results)));
                ProcessOutcome::Unavailable
            }
            (Some(results), StoreWrite::Acknowledged) => {
                self.later(LATENCY, SimEvent::Rows(Box::new(results)));
                let event = Event::Processed { request_id, outcome: ProcessOutcome::Done };
                self.later(LATENCY * 2, SimEvent::Arrival(process, event));
                return;
            }
            (Some(_), StoreWrite::Lost) => ProcessOutcome::Unavailable,
            (None, _) => ProcessOutcome::Failed("no handler state".into()),
        };
        self.later(STORE_TIMEOUT, SimEvent::Arrival(process, Event::Processed { request_id, outcome }));
    }

    pub(super) fn store_rows(&mut self, results: &Results) {
        self.store.rows.write(results);
        self.oracle.rows(self.now, results, &self.store.rows);
    }

    pub(super) fn ask_store(&mut self, process: ProcessId, effect: Effect) {
        let now = self.now;
        let is_down = self.store.is_down(now);
        let (wait, event) = match effect {
            Effect::ReadRecoveryPoint { request_id, .. } if is_down => {
                (STORE_TIMEOUT, Event::RecoveryPointRead { request_id, result: Err(ReadError) })
            }
            Effect::ReadRecoveryPoint { request_id, partition } => {
                let point = self.store.rows.recovery_point(self.traffic.partition(&partition));
                (LATENCY * 2, Event::RecoveryPointRead { request_id, result: Ok(point) })
            }
            Effect::RecordDeadLetter { request_id, partition, work, .. } => {
                let partition = self.traffic.partition(&partition);
                let step = |happened| Event::DeadLetterStep { request_id, happened };
                match Handler::dead_letter_results(partition, &work, &self.store.rows) {
                    Some(results) if !is_down => {
                        self.later(LATENCY, SimEvent::Rows(Box::new(results)));
                        (LATENCY * 2, step(true))
                    }
                    Some(_) => (STORE_TIMEOUT, step(false)),
                    None => {
                        self.oracle.missing_state(now, process, partition, work.committed);
                        (STORE_TIMEOUT, step(false))
                    }
                }
            }
            other => unreachable!("{other:?} is not for the store"),
        };
        self.later(wait, SimEvent::Arrival(process, event));
    }
}
