//! Calls of handlers: the result store, and the progress of messages.

use std::time::Duration;

use phalanx_cluster_core::ProcessRequest;
use phalanx_cluster_core::types::Time;

use crate::broker::{MessageKind, decode};
use crate::event::ScheduledAction;
use crate::faults::FaultTarget as _;
use crate::fleet::ProcessId;
use crate::handler::{Handler, Lookup};
use crate::network::LATENCY;
use crate::oracle::ASSERTION;
use crate::rules::EnvironmentRule;
use crate::shell::port::{Call, Reply, StoreReply};
use crate::shell::{ShellEvent, ShellWorld};
use crate::store::{Results, STORE_TIMEOUT, StoreWrite};

impl ShellWorld {
    /// Receives a call of a handler or of hooks.
    pub(super) fn receive_from_application(&mut self, at: Time, process: ProcessId, call: Call) {
        match call {
            Call::Start(name, work, reply) => {
                let partition = self.traffic.partition(&name);
                self.start_message(at, process, partition, &work, reply);
            }
            Call::WriteRows(name, reply) => {
                let partition = self.traffic.partition(&name);
                self.write_rows(at, process, partition, reply);
            }
            Call::RecordDeadLetter(name, work, reply) => {
                let partition = self.traffic.partition(&name);
                self.record_dead_letter(at, process, partition, &work, reply);
            }
            Call::RecoveryPoint(name, reply) => {
                let partition = self.traffic.partition(&name);
                let point = StoreReply::RecoveryPoint(self.store.rows.recovery_point(partition));
                match self.store.is_down(self.now) {
                    true => self.reply(at, STORE_TIMEOUT, reply, StoreReply::Unavailable),
                    false => self.reply(at, LATENCY * 2, reply, point),
                }
            }
            Call::End(name, is_complete) => {
                let partition = self.traffic.partition(&name);
                self.processing.remove(&(process, partition));
                self.oracle.on_processing_ended(process, partition);
                if !is_complete {
                    self.oracle.doubt(process, partition);
                }
            }
            Call::Crash => {
                self.kill(process);
                self.plan(Duration::from_secs(3), ScheduledAction::Start);
            }
            Call::Committed(name) => {
                let partition = self.traffic.partition(&name);
                self.processes[process.index()].handler.committed(partition);
            }
            Call::Expired(name, after, before) => {
                let partition = self.traffic.partition(&name);
                self.oracle.reported_expired(partition, after, before);
            }
            Call::WorkerStarted => self.oracle.worker_started(at, process),
            Call::InvariantViolated(violation) => {
                let what = format!("{process} violates an assertion at {violation}");
                self.oracle.report.violate(ASSERTION, self.now, what);
            }
            Call::IdentityLost => self.processes[process.index()].has_lost_id = true,
            Call::Backend(..) | Call::Watch(..) | Call::Subscribe(..) => {
                unreachable!("a call to the broker")
            }
        }
    }

    fn start_message(
        &mut self,
        at: Time,
        process: ProcessId,
        partition: u32,
        work: &ProcessRequest,
        reply: Reply<StoreReply>,
    ) {
        self.check_fence(at, process, "starts a message");
        self.oracle.on_processing_started(at, process, partition, work);
        self.processing.insert((process, partition), Box::new(None));
        if self.store.is_down(self.now) {
            self.reply(at, STORE_TIMEOUT, reply, StoreReply::Unavailable);
            return;
        }
        let handler = &mut self.processes[process.index()].handler;
        if work.ignore_cache {
            handler.forget(partition);
        }
        let (_, kind) = decode(&work.message.payload);
        let stores_results = match kind {
            MessageKind::Good => true,
            MessageKind::Flaky(times) => work.attempt > u32::from(times),
            MessageKind::CrashesWorker | MessageKind::Poison | MessageKind::NeverEnds => false,
        };
        let mut duration = Duration::ZERO;
        if stores_results {
            let is_exact = self.setup.enforces(EnvironmentRule::StateAtCommitted);
            let lookup = if is_exact { Lookup::Exact } else { Lookup::Newest };
            let strategy = self.store.strategy();
            let results = handler.compute(partition, work, strategy, lookup, &self.store.rows);
            if results.is_none() {
                self.oracle.missing_state(at, process, partition, work.committed);
                self.reply(at, STORE_TIMEOUT, reply, StoreReply::MissingState);
                return;
            }
            self.processing.insert((process, partition), Box::new(results));
            duration = self.traffic.processing_time();
        }
        self.reply(at, LATENCY * 2, reply, StoreReply::Started(duration));
    }

    fn write_rows(&mut self, at: Time, process: ProcessId, partition: u32, reply: Reply<StoreReply>) {
        self.check_fence(at, process, "writes rows");
        let results = self.processing.get_mut(&(process, partition)).and_then(|results| results.take());
        let Some(results) = results else { return };
        match self.store.write_path(at) {
            StoreWrite::Acknowledged => {
                self.at(at + LATENCY, ShellEvent::Rows(Box::new(results)));
                self.reply(at, LATENCY * 2, reply, StoreReply::Stored);
            }
            StoreWrite::Late(lag) => {
                self.at(at + lag, ShellEvent::Rows(Box::new(results)));
                self.reply(at, STORE_TIMEOUT, reply, StoreReply::Unavailable);
            }
            StoreWrite::Lost => self.reply(at, STORE_TIMEOUT, reply, StoreReply::Unavailable),
        }
    }

    fn record_dead_letter(
        &mut self,
        at: Time,
        process: ProcessId,
        partition: u32,
        work: &ProcessRequest,
        reply: Reply<StoreReply>,
    ) {
        self.check_fence(at, process, "dead-letters a message");
        match Handler::dead_letter_results(partition, work, &self.store.rows) {
            Some(results) if !self.store.is_down(at) => {
                self.at(at + LATENCY, ShellEvent::Rows(Box::new(results)));
                self.reply(at, LATENCY * 2, reply, StoreReply::Stored);
            }
            Some(_) => self.reply(at, STORE_TIMEOUT, reply, StoreReply::Unavailable),
            None => {
                self.oracle.missing_state(at, process, partition, work.committed);
                self.reply(at, STORE_TIMEOUT, reply, StoreReply::Unavailable);
            }
        }
    }

    pub(super) fn store_rows(&mut self, results: &Results) {
        self.store.rows.write(results);
        self.oracle.rows(self.now, results, &self.store.rows);
    }

    fn reply(&mut self, at: Time, delay: Duration, reply: Reply<StoreReply>, answer: StoreReply) {
        self.at(at + delay, ShellEvent::StoreAnswer(reply, answer));
    }
}
