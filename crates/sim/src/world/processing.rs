//! Messages that are being processed, and the store they are written to.

use super::*;

impl World {
    pub(super) fn drop_runs(&mut self, process: ProcessId) {
        let partitions: Vec<u32> = self.processes[process.index()].handler.runs.keys().copied().collect();
        for partition in partitions {
            self.oracle.on_processing_ended(process, partition);
        }
        self.processes[process.index()].handler.drop_all();
    }

    pub(super) fn notice(&mut self, process: ProcessId, notice: &Notice) {
        let kind = match notice {
            Notice::Committed { partition, .. } => {
                let partition = self.numbers[partition];
                self.processes[process.index()].handler.committed(partition);
                return;
            }
            Notice::Expired { partition, after, before } => {
                self.oracle.reported_expired(self.numbers[partition], *after, *before);
                "expired"
            }
            Notice::LogReplaced { .. } => "logReplaced",
            Notice::Adopted { .. } => "adopted",
            Notice::RestartDetected => "restartDetected",
            Notice::Planned(_) => "planned",
        };
        *self.notices.entry(kind).or_default() += 1;
    }

    pub(super) fn begin_run(&mut self, process: ProcessId, partition: u32, mut run: ProcessingRun) {
        let now = self.now;
        let processes = &self.processes;
        self.oracle.on_processing_started(now, process, partition, &run.work, |other| {
            let other = &processes[other.index()];
            other.alive && other.disturbed_until <= now
        });
        let (_, kind) = decode(&run.work.message.payload);
        let request_id = run.request_id;
        let milliseconds = |ms: u64| Duration::from_millis(ms);
        let (wait, step) = match kind {
            MessageKind::CrashesWorker => (milliseconds(100), ProcessingStep::Die),
            MessageKind::Poison => (milliseconds(10), ProcessingStep::Broken),
            MessageKind::Flaky(times) if run.work.attempt <= u32::from(times) => {
                (milliseconds(50), ProcessingStep::Fail)
            }
            MessageKind::NeverEnds => (self.setup.config.process_timeout, ProcessingStep::TimeOut),
            MessageKind::Good | MessageKind::Flaky(_) => {
                (milliseconds(self.traffic.between(2, 200)), ProcessingStep::Store)
            }
        };
        if self.store_down_until > now {
            self.oracle.on_processing_ended(process, partition);
            let event = Event::Processed { request_id, outcome: ProcessOutcome::Unavailable };
            self.later(STORE_TIMEOUT, SimEvent::Arrival(process, event));
            return;
        }
        if run.work.ignore_cache {
            self.processes[process.index()].handler.forget(partition);
        }
        // The handler state is read at the beginning, and the results are written at the end.
        if matches!(step, ProcessingStep::Store) {
            let exact = self.setup.enforces(EnvironmentRule::StateAtCommitted);
            let lookup = if exact { Lookup::Exact } else { Lookup::Newest };
            let handler = &mut self.processes[process.index()].handler;
            run.results = handler.compute(partition, &run.work, self.strategy, lookup, &self.store);
            if run.results.is_none() {
                let at = run.work.committed;
                let what = format!("{process} finds no handler state of partition {partition} at {at:?}");
                self.oracle.violate(5, now, what);
            }
        }
        self.processes[process.index()].handler.runs.insert(partition, run);
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
        let target = &mut self.processes[process.index()];
        if !target.alive {
            return;
        }
        if target.stopped {
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
            ProcessingStep::Die => {
                self.kill(process);
                self.plan(Duration::from_secs(3), ScheduledAction::Start);
                return;
            }
            ProcessingStep::Store => {
                self.send_rows(process, partition);
                return;
            }
            ProcessingStep::Fail => ProcessOutcome::Failed("it fails".into()),
            ProcessingStep::Broken => ProcessOutcome::Poison("it is broken".into()),
            ProcessingStep::TimeOut => ProcessOutcome::Failed("it took too long".into()),
        };
        target.handler.runs.remove(&partition);
        self.oracle.on_processing_ended(process, partition);
        self.later(Duration::ZERO, SimEvent::Arrival(process, Event::Processed { request_id, outcome }));
    }

    pub(super) fn send_rows(&mut self, process: ProcessId, partition: u32) {
        let now = self.now;
        if !self.processes[process.index()].lost_time {
            self.oracle.check_fence(now, process, "writes rows");
        }
        let Some(run) = self.processes[process.index()].handler.runs.remove(&partition) else { return };
        self.oracle.on_processing_ended(process, partition);
        let request_id = run.request_id;
        let away = self.store_down_until > now;
        let outcome = match run.results {
            Some(results) if self.store_late_until > now => {
                // Its writer has given up when it lands.
                self.later(self.store_lag, SimEvent::Rows(Box::new(results)));
                ProcessOutcome::Unavailable
            }
            Some(results) if !away => {
                self.later(LATENCY, SimEvent::Rows(Box::new(results)));
                let event = Event::Processed { request_id, outcome: ProcessOutcome::Done };
                self.later(LATENCY * 2, SimEvent::Arrival(process, event));
                return;
            }
            Some(_) => ProcessOutcome::Unavailable,
            None => ProcessOutcome::Failed("no handler state".into()),
        };
        self.later(STORE_TIMEOUT, SimEvent::Arrival(process, Event::Processed { request_id, outcome }));
    }

    pub(super) fn store_rows(&mut self, results: &Results) {
        self.store.write(results);
        let sum = results
            .rows
            .iter()
            .fold(0, |sum, (indicator, content)| mix(sum, content ^ u64::from(*indicator)));
        self.oracle.rows(self.now, results, &self.store, sum);
    }

    pub(super) fn ask_store(&mut self, process: ProcessId, effect: Effect) {
        let now = self.now;
        let away = self.store_down_until > now;
        let (wait, event) = match effect {
            Effect::ReadRecoveryPoint { request_id, .. } if away => {
                (STORE_TIMEOUT, Event::RecoveryPointRead { request_id, result: Err(ReadError) })
            }
            Effect::ReadRecoveryPoint { request_id, partition } => {
                let point = self.store.recovery_point(self.numbers[&partition]);
                (LATENCY * 2, Event::RecoveryPointRead { request_id, result: Ok(point) })
            }
            Effect::RecordDeadLetter { request_id, partition, work, .. } => {
                let partition = self.numbers[&partition];
                let results = Handler::dead_letter_results(partition, &work, &self.store);
                match results {
                    Some(results) if !away => {
                        self.later(LATENCY, SimEvent::Rows(Box::new(results)));
                        (LATENCY * 2, Event::DeadLetterStep { request_id, happened: true })
                    }
                    Some(_) => (STORE_TIMEOUT, Event::DeadLetterStep { request_id, happened: false }),
                    None => {
                        let at = work.committed;
                        self.oracle.violate(
                            5,
                            now,
                            format!("{process} finds no handler state of {partition} at {at:?}"),
                        );
                        (STORE_TIMEOUT, Event::DeadLetterStep { request_id, happened: false })
                    }
                }
            }
            other => unreachable!("{other:?} is not for the store"),
        };
        self.later(wait, SimEvent::Arrival(process, event));
    }
}
