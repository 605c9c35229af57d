//! The second mode of the simulator: processes that run the real shell (shell, codec, backend traits, handler) on paused
//! tokio clocks, under the same network, faults and checkers.
//!
//! Each process has a runtime of its own on one thread, so it can be killed, stopped and resumed at any moment. Time passes
//! in steps of 10 to 50 ms: in each step every process runs by itself; then the world receives its calls in the order of
//! their times. The same seed gives the same trace.

mod application;
mod calls;
mod chaos;
mod controls;
mod observation;
mod port;
mod process;
mod storage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster::backend::{Error, StoreConfig, WatchEvent};
use phalanx_cluster::codec::Codec;
use phalanx_cluster_core::types::{Revision, Time};
use phalanx_cluster_core::{Config, RequestId};
use tokio::sync::mpsc;

use crate::backend::{Request, Response, Server};
use crate::broker::MessageKind;
use crate::event::ScheduledAction;
use crate::faults::FaultTarget as _;
use crate::fleet::ProcessId;
use crate::network::{Network, WatchedBucket};
use crate::oracle::Oracle;
use crate::oracle::invariant_19_trace_hash::Trace;
use crate::queue::EventQueue;
use crate::rng::Rng;
use crate::setup::Setup;
use crate::store::{ResultStore, Results};
use crate::traffic::Traffic;

pub(crate) use chaos::run_with;
use port::{Call, Reply, StoreReply};
use process::{ProcessConfig, SharedPartitions, ShellProcess};

/// The shortest step of time: the resolution of delays between processes.
const MIN_STEP: Duration = Duration::from_millis(10);
/// The longest step of time, while nothing is on its way.
const MAX_STEP: Duration = Duration::from_millis(50);

/// The reply to a request of a process, and the id under which the oracle knows it.
#[derive(Debug)]
struct PendingReply {
    reply: Reply<Result<Response, Error>>,
    request_id: RequestId,
}

/// The sender of a watch and one of its events.
type WatchDelivery = (mpsc::UnboundedSender<WatchEvent>, WatchEvent);

/// A scheduled event.
#[derive(Debug)]
enum ShellEvent {
    /// A request reaches the broker.
    Request(ProcessId, Request, PendingReply),
    /// A request reaches the broker after its caller has given up, or a second time.
    LateRequest(ProcessId, Request),
    /// The start of a watch reaches the broker.
    Watch(ProcessId, Arc<str>, Revision, mpsc::UnboundedSender<WatchEvent>, PendingReply),
    /// The start of a wake-up subscription reaches the broker.
    Subscribe(ProcessId, Arc<str>, String, mpsc::UnboundedSender<()>, PendingReply),
    /// An answer reaches a process.
    Answer(ProcessId, PendingReply, Result<Response, Error>),
    /// A reply of the result store reaches a process.
    StoreAnswer(Reply<StoreReply>, StoreReply),
    /// A watch shows a change.
    Watched(WatchDelivery),
    /// The watches of a process show what was delayed.
    DeliverDelayed(ProcessId),
    /// A wake-up arrives.
    WakeUp(mpsc::UnboundedSender<()>),
    /// Results reach the store.
    Rows(Box<Results>),
    /// A partition publishes a message.
    Traffic(u32),
    /// An action that was scheduled from outside, and when.
    Scheduled(Time, ScheduledAction),
}

/// A watch of a process.
#[derive(Debug)]
struct RunningWatch {
    process: ProcessId,
    bucket: Arc<str>,
    kind: WatchedBucket,
    events: mpsc::UnboundedSender<WatchEvent>,
}

/// A wake-up subscription of a process.
#[derive(Debug)]
struct RunningSubscription {
    process: ProcessId,
    subject: String,
    wake_ups: mpsc::UnboundedSender<()>,
}

/// A cluster of processes with the real shell.
pub(crate) struct ShellWorld {
    setup: Setup,
    stores: StoreConfig,
    codec: Codec,
    now: Time,
    queue: EventQueue<ShellEvent>,
    network: Network<WatchDelivery>,
    server: Server,
    watches: Vec<RunningWatch>,
    subscriptions: Vec<RunningSubscription>,
    processes: Vec<ShellProcess>,
    running: Vec<ProcessId>,
    /// Processes that were started with another fleet size.
    mismatched: Vec<ProcessId>,
    max_processes: usize,
    clocks: Option<Rng>,
    traffic: Traffic,
    listed: SharedPartitions,
    store: ResultStore,
    oracle: Oracle,
    trace: Trace,
    publications: usize,
    /// The number of calls so far, from which request ids are made.
    calls: u64,
    /// The messages that each process processes, for its crash.
    processing: BTreeMap<(ProcessId, u32), Box<Option<Results>>>,
    actions_dropped_until: Time,
}

impl ShellWorld {
    /// Starts a process in a new pod.
    fn start(&mut self, config: Config) -> ProcessId {
        let process = ProcessId(self.processes.len() as u32);
        let clock = self.clocks.as_mut().map_or(0, |clocks| clocks.between(0, 7200));
        let config = ProcessConfig {
            config,
            stores: self.stores.clone(),
            partitions: self.listed.clone(),
            clock: Time::from_secs(clock),
        };
        match ShellProcess::start(process, self.now, config) {
            Ok(started) => self.processes.push(started),
            Err(error) => panic!("cannot build a runtime: {error}"),
        }
        self.running.push(process);
        self.network.add_link();
        self.oracle.started(self.now);
        self.note(|| format!("{process} starts"));
        process
    }

    /// Runs up to a time.
    fn run_until(&mut self, end: Time) {
        while self.now < end {
            self.step();
        }
    }

    /// Runs while something is true, for at most this time. Returns whether it became false.
    fn run_while(&mut self, longest: Duration, continues: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + longest;
        while continues(self) {
            if self.now >= end {
                return false;
            }
            self.step();
        }
        true
    }

    /// Lets one step of time pass.
    fn step(&mut self) {
        while let Some((_, event)) = self.queue.next(self.now) {
            self.dispatch(event);
        }
        let idle = self.queue.next_at().map_or(MAX_STEP, |at| at.saturating_sub(self.now));
        let end = self.now + idle.clamp(MIN_STEP, MAX_STEP);
        let mut calls = Vec::new();
        for process in self.running.clone() {
            let target = &mut self.processes[process.index()];
            if target.is_stopped || !target.is_alive() {
                continue;
            }
            target.run_until(self.now, end);
            calls.extend(target.take_calls().into_iter().map(|(at, call)| (at, process, call)));
        }
        self.now = end;
        // The sort is stable: calls of one process at one time keep their order.
        calls.sort_by_key(|(at, process, _)| (*at, *process));
        for (at, process, call) in calls {
            if self.is_alive(process) && !self.processes[process.index()].may_call() {
                self.kill(process);
            }
            if self.is_alive(process) || matches!(call, Call::End(..)) {
                self.receive(at.min(end), process, call);
            }
        }
        self.check_processes();
    }

    fn dispatch(&mut self, event: ShellEvent) {
        match event {
            // The folder of these processes was opened again.
            ShellEvent::Request(process, ..)
            | ShellEvent::LateRequest(process, _)
            | ShellEvent::Watch(process, ..)
            | ShellEvent::Subscribe(process, ..)
                if !self.network.carries(process) => {}
            ShellEvent::Request(process, request, reply) => self.answer(process, request, reply),
            ShellEvent::LateRequest(process, request) => {
                // The caller has given up.
                let _ = self.apply(process, request, u64::MAX);
            }
            ShellEvent::Watch(process, bucket, after, events, reply) => {
                self.start_watch(process, bucket, after, events, reply);
            }
            ShellEvent::Subscribe(process, log, subject, wake_ups, reply) => {
                debug_assert_eq!(*log, *self.stores.log.name, "wake-ups of the log of messages");
                self.subscriptions.push(RunningSubscription { process, subject, wake_ups });
                self.send_answer(process, reply, Ok(Response::Done));
            }
            ShellEvent::Answer(process, pending, result) => self.deliver(process, pending, result),
            ShellEvent::StoreAnswer(reply, answer) => drop(reply.send(answer)),
            ShellEvent::Watched((events, event)) => drop(events.send(event)),
            ShellEvent::DeliverDelayed(process) => {
                for (events, event) in self.network.link_mut(process).take_due(self.now) {
                    let _ = events.send(event);
                }
            }
            ShellEvent::WakeUp(wake_ups) => drop(wake_ups.send(())),
            ShellEvent::Rows(results) => self.store_rows(&results),
            ShellEvent::Traffic(partition) => {
                if let Some(kind) = self.traffic.next_kind(partition) {
                    self.publish(partition, kind);
                    self.plan_traffic(partition);
                }
            }
            ShellEvent::Scheduled(made, action) => {
                if made > self.actions_dropped_until || self.actions_dropped_until == Time::ZERO {
                    self.execute_action(action);
                }
            }
        }
    }

    fn publish(&mut self, partition: u32, kind: MessageKind) -> u64 {
        let number = self.traffic.next_number(partition);
        self.append(partition, number, number, kind);
        number
    }

    fn is_alive(&self, process: ProcessId) -> bool {
        self.processes[process.index()].is_alive()
    }

    fn plan_traffic(&mut self, partition: u32) {
        if let Some(interval) = self.traffic.next_interval() {
            self.later(interval, ShellEvent::Traffic(partition));
        }
    }

    fn later(&mut self, delay: Duration, event: ShellEvent) {
        self.at(self.now + delay, event);
    }

    fn at(&mut self, at: Time, event: ShellEvent) {
        self.queue.plan(at.max(self.now), event);
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        self.trace.line(self.now, what);
    }
}
