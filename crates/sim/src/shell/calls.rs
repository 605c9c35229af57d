//! Calls of processes to the broker: their way, their effect, and the answers.

use std::sync::Arc;

use phalanx_cluster::backend::{Error, WatchEvent};
use phalanx_cluster_core::types::{Revision, Time};
use phalanx_cluster_core::{Purpose, RequestId, WriteError};
use tokio::sync::mpsc;

use crate::backend::{Change, Expect, Request, Response};
use crate::broker::{MessageKind, encode};
use crate::fleet::ProcessId;
use crate::network::{self, LATENCY, Passage, TIMEOUT, WatchedBucket};
use crate::rules::EnvironmentRule;
use crate::shell::port::{Call, Reply};
use crate::shell::{PendingReply, RunningWatch, ShellEvent, ShellWorld};

/// The time by which a replica of the log may be behind, in microseconds.
const REPLICA_LAG: u64 = 3_000_000;

impl ShellWorld {
    /// Receives a call that a process made at a time.
    pub(super) fn receive(&mut self, at: Time, process: ProcessId, call: Call) {
        self.calls += 1;
        self.trace.event(at, process.0, shape(&call));
        self.trace.line(at, || format!("{process} -> {call:?}"));
        match call {
            Call::Backend(request, reply) => {
                let pending = self.observe_request(at, process, &request, reply);
                self.send(at, process, request, pending);
            }
            Call::Watch(bucket, after, events, reply) => {
                let event = |pending| ShellEvent::Watch(process, bucket, after, events, pending);
                self.send_read(at, process, reply, event);
            }
            Call::Subscribe(log, subject, wake_ups, reply) => {
                let event = |pending| ShellEvent::Subscribe(process, log, subject, wake_ups, pending);
                self.send_read(at, process, reply, event);
            }
            other => self.receive_from_application(at, process, other),
        }
    }

    /// Returns the id of a request for the oracle.
    pub(super) fn request_id(&self, purpose: Purpose) -> RequestId {
        RequestId { purpose, serial: self.calls }
    }

    /// Sends a request to the broker: it may wait for the link, come late, or lose its answer.
    fn send(&mut self, at: Time, process: ProcessId, request: Request, pending: PendingReply) {
        let key = self.key_of(&request);
        let (purpose, is_write) = (Some(pending.request_id.purpose), request.is_write());
        let route =
            self.network.route(at, process, network::Request { key: key.as_ref(), purpose, is_write });
        for copy in route.copies.into_iter().flatten() {
            self.at(at + copy, ShellEvent::LateRequest(process, request.clone()));
        }
        match route.passage {
            Passage::Arrives(delay) => self.at(at + delay, ShellEvent::Request(process, request, pending)),
            Passage::Lost => self.give_up(at, process, pending),
            Passage::TimesOut(late) => {
                self.oracle.processes.disturb(process, at);
                self.give_up(at, process, pending);
                if let Some(late) = late {
                    self.at(at + late, ShellEvent::LateRequest(process, request));
                }
            }
        }
    }

    /// Sends the start of a watch or of a subscription.
    fn send_read(
        &mut self,
        at: Time,
        process: ProcessId,
        reply: Reply<Result<Response, Error>>,
        event: impl FnOnce(PendingReply) -> ShellEvent,
    ) {
        let pending = PendingReply { reply, request_id: self.request_id(Purpose::ReadMap) };
        let request = network::Request { key: None, purpose: None, is_write: false };
        match self.network.route(at, process, request).passage {
            Passage::Arrives(delay) => self.at(at + delay, event(pending)),
            Passage::Lost | Passage::TimesOut(_) => {
                self.oracle.processes.disturb(process, at);
                self.give_up(at, process, pending);
            }
        }
    }

    /// Fails a call whose answer never comes, as a client does that waits longer than the shell.
    fn give_up(&mut self, at: Time, process: ProcessId, pending: PendingReply) {
        let error = Error::unknown("request", "no answer");
        self.at(at + TIMEOUT * 2, ShellEvent::Answer(process, pending, Err(error)));
    }

    /// Executes a request at the broker and sends the answer.
    pub(super) fn answer(&mut self, process: ProcessId, request: Request, pending: PendingReply) {
        let result = match &request {
            Request::Get(bucket, key) if self.network.rolls_stale_read() => {
                self.oracle.processes.disturb(process, self.now);
                if let Some(partition) = self.partition_of_cursor(&request) {
                    self.oracle.doubt(process, partition);
                }
                Ok(Response::Entry(self.server.before(bucket, key)))
            }
            Request::Read { .. } if self.network.rolls_stale_log() => {
                let until = self.server.micros(self.now) - REPLICA_LAG;
                self.apply(process, request, until)
            }
            _ => self.apply(process, request, u64::MAX),
        };
        self.send_answer(process, pending, result);
    }

    /// Sends an answer to a process.
    pub(super) fn send_answer(
        &mut self,
        process: ProcessId,
        pending: PendingReply,
        result: Result<Response, Error>,
    ) {
        match self.network.answer_delay(self.now, process) {
            Some(delay) => self.later(delay, ShellEvent::Answer(process, pending, result)),
            None => {
                self.oracle.processes.disturb(process, self.now);
                self.give_up(self.now, process, pending);
            }
        }
    }

    /// Delivers an answer to a process.
    pub(super) fn deliver(
        &mut self,
        process: ProcessId,
        pending: PendingReply,
        result: Result<Response, Error>,
    ) {
        self.trace.event(self.now, process.0, (pending.request_id.serial << 8) + u64::from(result.is_ok()));
        let seen = match &result {
            Ok(_) => Ok(()),
            Err(error) => Err(WriteError::from(error)),
        };
        // A caller that has given up never learns the outcome.
        let result = pending.reply.send(result).map_or(Err(WriteError::Unknown), |()| seen);
        self.oracle.answered(process, pending.request_id, result);
    }

    /// Executes a request at the broker and tells watches, subscriptions and oracle.
    pub(super) fn apply(
        &mut self,
        process: ProcessId,
        request: Request,
        until: u64,
    ) -> Result<Response, Error> {
        self.expire();
        let before = self.value_before(&request);
        let applied = request.clone();
        let response = self.server.execute(self.now, request, until)?;
        self.observe_applied(process, &applied, &response, before);
        self.notify();
        Ok(response)
    }

    /// Tells watches and subscriptions what has changed.
    pub(super) fn notify(&mut self) {
        for change in self.server.take_changes() {
            match change {
                Change::Bucket(bucket, event) => self.notify_watches(&bucket, &event),
                Change::Log(log, subject) if *log == *self.stores.log.name => {
                    self.notify_subscriptions(&subject)
                }
                Change::Log(..) => {}
            }
        }
    }

    fn notify_watches(&mut self, bucket: &str, event: &WatchEvent) {
        let now = self.now;
        self.watches.retain(|watch| !watch.events.is_closed());
        let mut planned = Vec::new();
        for watch in self.watches.iter().filter(|watch| *watch.bucket == *bucket) {
            let link = self.network.link_mut(watch.process);
            let delivery = (watch.events.clone(), event.clone());
            if link.is_watch_immediate(now, watch.kind) {
                planned.push((now + LATENCY, ShellEvent::Watched(delivery)));
            } else if watch.kind == WatchedBucket::Assignments && std::mem::take(&mut link.drops_map) {
                // The change is lost.
            } else {
                let at = link.delay(now, LATENCY, watch.kind, delivery);
                planned.push((at, ShellEvent::DeliverDelayed(watch.process)));
            }
        }
        planned.into_iter().for_each(|(at, event)| self.at(at, event));
    }

    fn notify_subscriptions(&mut self, subject: &str) {
        let now = self.now;
        self.subscriptions.retain(|subscription| !subscription.wake_ups.is_closed());
        let of_subject = self.subscriptions.iter().filter(|subscription| subscription.subject == subject);
        let connected = of_subject.filter(|to| self.network.link(to.process).cut_in <= now);
        let wake_ups: Vec<_> = connected.map(|subscription| subscription.wake_ups.clone()).collect();
        wake_ups.into_iter().for_each(|wake_ups| self.later(LATENCY, ShellEvent::WakeUp(wake_ups)));
    }

    pub(super) fn start_watch(
        &mut self,
        process: ProcessId,
        bucket: Arc<str>,
        after: Revision,
        events: mpsc::UnboundedSender<WatchEvent>,
        pending: PendingReply,
    ) {
        let result = self.server.watch_after(self.now, &bucket, after).map(|first| {
            first.into_iter().for_each(|event| drop(events.send(event)));
            let kind = self.watched_bucket(&bucket);
            self.watches.push(RunningWatch { process, bucket, kind, events });
            Response::Done
        });
        self.send_answer(process, pending, result);
    }

    /// Appends a message to the log, as a publisher without faults.
    pub(super) fn append(&mut self, partition: u32, id: u64, number: u64, kind: MessageKind) {
        self.expire();
        let name = self.traffic.name(partition).clone();
        let (log, subject) = (self.stores.log.name.as_str().into(), self.stores.subjects.subject(&name));
        // Without the rule the broker takes a message for one of another partition and acknowledges it all the same.
        let names_partition = self.setup.enforces(EnvironmentRule::MessageIds);
        let expect = Expect::NewId(if names_partition { format!("{name}:{id}") } else { id.to_string() });
        let payload = encode(number, kind).to_vec().into();
        let request = Request::Append(log, subject, payload, expect);
        match self.server.execute(self.now, request, u64::MAX) {
            Ok(Response::Appended(appended)) if appended.duplicate && !names_partition => {
                self.oracle.never_stored(self.now, partition, number);
            }
            Ok(Response::Appended(appended)) if appended.duplicate => self.oracle.dropped_duplicate(),
            Ok(Response::Appended(appended)) => {
                let sequence = phalanx_cluster_core::types::Sequence(appended.sequence);
                self.oracle.published(partition, sequence, number, kind);
            }
            // The log does not exist before the first worker has started.
            _ => {}
        }
        self.notify();
    }
}

/// Returns the kind of a call, for the trace hash.
fn shape(call: &Call) -> u64 {
    match call {
        Call::Backend(request, _) => match request {
            Request::Write(_, key, ..) => 20 + (key.len() as u64) * 256,
            Request::Append(_, subject, ..) => 21 + (subject.len() as u64) * 256,
            Request::Get(_, key) => 22 + (key.len() as u64) * 256,
            Request::Delete(_, key, _) => 23 + (key.len() as u64) * 256,
            request if request.is_write() => 24,
            _ => 25,
        },
        Call::Watch(..) => 2,
        Call::Subscribe(..) => 3,
        Call::Start(_, work, _) => 4 + (work.position.sequence.0 << 8),
        Call::WriteRows(..) => 5,
        Call::RecordDeadLetter(..) => 6,
        Call::RecoveryPoint(..) => 7,
        Call::End(_, is_complete) => 8 + (u64::from(*is_complete) << 8),
        Call::Crash => 9,
        Call::Committed(_) => 10,
        Call::Expired(..) => 11,
        Call::IdentityLost => 12,
        Call::InvariantViolated(_) => 14,
        Call::WorkerStarted => 13,
    }
}
