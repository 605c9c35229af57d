//! The world: a virtual clock, a broker, a log, a store, processes, and what happens between them.

mod controls;
mod network;
mod processing;
mod queries;
mod traffic;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster_core::types::{
    AssignmentMap, Entry, Key, LogId, PartitionList, Pod, Revision, Time, Value, Version, Weight, WorkerId,
};
use phalanx_cluster_core::{
    Condition, Config, Effect, Event, LeaseExpiry, LogInspection, LogPage, Notice, ProcessOutcome,
    ProtocolRule, Purpose, ReadError, RequestId, SubjectList, WorkerCore, WorkerState, WriteError,
};

use crate::HashMap;
use crate::broker::Broker;
use crate::faults::RequestFault;
use crate::handler::{Handler, Lookup, ProcessingRun};
use crate::log::{Log, MessageKind, decode, encode};
use crate::oracle::{Counts, Oracle, Violation};
use crate::process::{Bucket, Clock, Process};
use crate::queue::EventQueue;
use crate::rng::Rng;
use crate::rules::{EnvironmentRule, Rule};
use crate::store::{Results, Store, StoreRules, context_name, mix};

/// One way between a process and the broker.
const LATENCY: Duration = Duration::from_millis(1);
/// An answer that has not come by then does not count any more.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long the application takes to let go of what it has lost, or to drain.
const RELEASE_TIME: Duration = Duration::from_millis(50);
/// How long the store is waited for.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// A process that something befell is not expected to be alone for this much longer.
const RECOVERY_MARGIN: Duration = Duration::from_secs(60);

/// The broker forgets a heartbeat that is older, in microseconds.
const HEARTBEAT_TTL: u64 = 30_000_000;

/// How a world is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The configuration of every worker.
    pub config: Config,
    /// How many partitions there are, named `tool:0`, `tool:1`, ….
    pub partitions: usize,
    /// How long the log keeps a message.
    pub retention: Duration,
    /// The mean time between two messages of one partition; none for a silent fab.
    pub traffic: Option<Duration>,
    /// The seed of the traffic, and of how long messages take.
    pub seed: u64,
    /// The rule of the environment to run without, in a build that can.
    pub disabled_rule: Option<EnvironmentRule>,
}

impl Setup {
    /// Disables a rule of the protocol or of its environment. Returns whether this build can: only one with the feature
    /// `mutants` of the core does.
    pub fn disable_rule(&mut self, rule: Rule) -> bool {
        match rule {
            Rule::Protocol(rule) => self.config.disable_rule(rule),
            Rule::Environment(rule) => {
                self.disabled_rule = Some(rule);
                !self.enforces(rule)
            }
        }
    }

    /// Whether a rule of the environment is enforced: always, except in a test that disables it.
    pub fn enforces(&self, rule: EnvironmentRule) -> bool {
        !ProtocolRule::CAN_BE_DISABLED || self.disabled_rule != Some(rule)
    }
}

impl Default for Setup {
    fn default() -> Self {
        let retention = Duration::from_secs(7 * 24 * 3600);
        Self {
            config: Config::default(),
            partitions: 300,
            retention,
            traffic: None,
            seed: 1,
            disabled_rule: None,
        }
    }
}

/// Names a process that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(u32);

impl ProcessId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for ProcessId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {}", self.0)
    }
}

/// A map that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The second of the virtual clock.
    pub second: u64,
    /// Its version.
    pub version: u64,
    /// How far the cluster has come: `post_cold_start` or `stable`.
    pub lifecycle: &'static str,
    /// How many workers it is for.
    pub workers: usize,
    /// How many partitions changed their owner.
    pub moved: usize,
}

/// Something to come, planned from outside.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduledAction {
    /// A process starts.
    Start,
    /// A process starts, and its configuration says another fleet size.
    StartWithSize(Option<u32>),
    /// SIGKILL.
    Kill(ProcessId),
    /// SIGTERM.
    Terminate(ProcessId),
    /// SIGCONT.
    Resume(ProcessId),
    /// Its heartbeats arrive again, its answers are fast, and it is shown at once what it watches.
    Mend(ProcessId),
    /// The log keeps messages for so long again.
    Retention(Duration),
    /// A person says how many workers there should be; none takes that back.
    FleetSize(Option<u32>),
    /// A message is published again.
    PublishAgain(u32, u64),
    /// A message is published again, under an id of its own.
    Replay(u32, u64),
    /// SIGKILL for whoever leads then.
    KillLeader,
    /// SIGKILL for whoever was started last.
    KillNewest,
    /// The embedded folder is opened again; processes that still use it are killed.
    ReopenFolder,
}

/// A step of a message that is being processed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProcessingStep {
    /// The results are computed and sent to the store.
    Store,
    /// It kills its process.
    Die,
    /// It ends like this.
    Fail,
    Broken,
    TimeOut,
}

#[derive(Debug)]
pub(crate) enum SimEvent {
    /// A request reaches the broker or the store.
    Request(ProcessId, Effect),
    /// A request reaches the broker after its caller has given up.
    LateRequest(ProcessId, Effect),
    /// Something reaches a process.
    Arrival(ProcessId, Event),
    /// Everybody but these is shown a change; whoever started later saw it then.
    Broadcast { key: Key, entry: Option<Entry>, but: Vec<ProcessId>, until: u32 },
    /// A process is shown what was held back from it.
    ShowHeldBack(ProcessId),
    /// A deadline of a process.
    Wake(ProcessId),
    /// A message that is being processed goes on.
    Step(ProcessId, u32, RequestId, ProcessingStep),
    /// A term after a lease was granted or renewed.
    TermOver(Revision),
    /// Results reach the store, from whomever they come.
    Rows(Box<Results>),
    /// A partition ends a run.
    Traffic(u32),
    /// Something that was planned from outside.
    Planned(Time, ScheduledAction),
}

/// A simulated cluster.
#[derive(Debug)]
pub struct World {
    setup: Setup,
    now: Time,
    queue: EventQueue<SimEvent>,
    broker: Broker,
    log: Log,
    store: Store,
    store_down_until: Time,
    /// Until then whoever grants leases answers nobody; every lease gets a full term from then on.
    agent_down_until: Time,
    /// Until then writes to the store get stuck, and land later.
    store_late_until: Time,
    store_lag: Duration,
    strategy: u64,
    processes: Vec<Process>,
    living: Vec<ProcessId>,
    most_processes: usize,
    /// Processes with a fleet size of their own.
    mismatched_sizes: Vec<ProcessId>,
    published: Vec<Publication>,
    partitions: Arc<PartitionList>,
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    /// The publisher's next number for each partition.
    next_number: Vec<u64>,
    unlisted: Vec<u32>,
    /// How the next messages of a partition behave.
    planned_kinds: BTreeMap<u32, MessageKind>,
    oracle: Oracle,
    traffic: Rng,
    traffic_enabled: bool,
    /// Gives every machine a clock of its own.
    clocks: Option<Rng>,
    /// How far the broker's clock is off, in microseconds.
    broker_offset: i64,
    /// Chooses lost and late answers; none in a world without them.
    fault_rng: Option<Rng>,
    /// The kinds of lost and late answers that there are.
    request_faults: Vec<RequestFault>,
    request_fault_counts: BTreeMap<&'static str, u64>,
    notices: BTreeMap<&'static str, u64>,
    /// Plans made until then are forgone.
    actions_dropped_until: Time,
    /// Requests of processes below this number are lost: they ended before the folder was opened again.
    first_of_folder: u32,
    hash: u64,
    trace: Option<Vec<String>>,
    pub(crate) events: u64,
}

impl World {
    /// An empty world at second 0.
    pub fn new(setup: Setup) -> Self {
        // Weights spread over a factor of 120, as partitions have them.
        let weight = |i: usize| Weight(30_000 * (1 + (i as u64).wrapping_mul(2_654_435_761) % 120));
        let names: Vec<Arc<str>> = (0..setup.partitions).map(|i| Arc::from(format!("tool:{i}"))).collect();
        let partitions = names.iter().enumerate().map(|(i, name)| (name.clone(), weight(i))).collect();
        let numbers = names.iter().enumerate().map(|(i, name)| (name.clone(), i as u32)).collect();
        let rules = StoreRules {
            higher_wins: setup.enforces(EnvironmentRule::HigherTokenWins),
            token_counts: setup.enforces(EnvironmentRule::ReadersFollowToken),
        };
        let mut world = Self {
            now: Time::ZERO,
            queue: EventQueue::new(),
            broker: Broker::default(),
            log: Log::new(LogId(1), setup.retention),
            store: Store::new(rules),
            store_down_until: Time::ZERO,
            agent_down_until: Time::ZERO,
            store_late_until: Time::ZERO,
            store_lag: Duration::ZERO,
            strategy: 0,
            processes: Vec::new(),
            living: Vec::new(),
            most_processes: usize::MAX,
            mismatched_sizes: Vec::new(),
            published: Vec::new(),
            partitions,
            next_number: vec![0; names.len()],
            names,
            numbers,
            unlisted: Vec::new(),
            planned_kinds: BTreeMap::new(),
            oracle: Oracle::default(),
            traffic: Rng::new(setup.seed),
            traffic_enabled: setup.traffic.is_some(),
            clocks: None,
            broker_offset: 0,
            fault_rng: None,
            request_faults: Vec::new(),
            request_fault_counts: BTreeMap::new(),
            notices: BTreeMap::new(),
            actions_dropped_until: Time::ZERO,
            first_of_folder: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            trace: None,
            events: 0,
            setup,
        };
        for partition in 0..world.names.len() as u32 {
            world.plan_traffic(partition);
        }
        world
    }

    /// Keeps a line for everything that happens from now on.
    pub fn keep_trace(&mut self) {
        self.trace.get_or_insert_default();
    }

    /// The lines kept so far.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes something in the trace, such as a fault.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.6} {}", now.since_origin().as_secs_f64(), what()));
        }
    }

    /// Starts a process in a new pod.
    pub fn start(&mut self) -> ProcessId {
        let config = self.setup.config.clone();
        self.start_with(config)
    }

    /// Starts a process with a configuration of its own.
    pub fn start_with(&mut self, config: Config) -> ProcessId {
        let process = ProcessId(self.processes.len() as u32);
        let pod = Pod { name: format!("pod-{}", process.0).into(), uid: format!("uid-{}", process.0).into() };
        let clock = self.clocks.as_mut().map_or_else(Clock::default, |clocks| {
            let drift = clocks.between(0, 400) as i64 - 200;
            Clock::new(Duration::from_secs(clocks.between(0, 7200)), drift)
        });
        let worker = WorkerCore::new(clock.shows(self.now), pod, config);
        self.processes.push(Process::new(worker, clock));
        self.living.push(process);
        self.oracle.started(self.now);
        self.note(|| format!("{process} starts"));
        self.resync(process);
        process
    }

    /// A process is shown everything there is, as at the beginning of a watch.
    fn resync(&mut self, process: ProcessId) {
        self.broker.expire_heartbeats(self.micros().saturating_sub(HEARTBEAT_TTL));
        let retained: Vec<Event> = self
            .broker
            .watched()
            .map(|(key, entry)| Event::Watched {
                key: key.clone(),
                entry: Some(entry.clone()),
                retained: true,
            })
            .collect();
        for event in retained.into_iter().chain([Event::Partitions(self.partitions.clone()), Event::Synced]) {
            self.later(LATENCY, SimEvent::Arrival(process, event));
        }
    }

    fn end(&mut self, process: ProcessId) {
        let target = &mut self.processes[process.index()];
        target.alive = false;
        target.pending_events.clear();
        target.handler.drop_all();
        self.living.retain(|&living| living != process);
    }

    /// Lets time pass up to that second.
    pub fn run_until(&mut self, end: Time) {
        while let Some((at, happening)) = self.queue.next(end) {
            self.now = self.now.max(at);
            self.dispatch(happening);
        }
        self.now = self.now.max(end);
    }

    /// Lets time pass until something is true, or for so long. Says whether it became true.
    pub fn run_while(&mut self, longest: Duration, mut goes_on: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + longest;
        while goes_on(self) {
            match self.queue.next(end) {
                Some((at, happening)) => {
                    self.now = self.now.max(at);
                    self.dispatch(happening);
                }
                None => {
                    self.now = end;
                    return !goes_on(self);
                }
            }
        }
        true
    }

    fn dispatch(&mut self, happening: SimEvent) {
        match happening {
            SimEvent::Request(process, _) | SimEvent::LateRequest(process, _)
                if process.0 < self.first_of_folder => {}
            SimEvent::Request(process, effect) => self.answer(process, effect),
            SimEvent::LateRequest(process, effect) => {
                self.apply(process, effect);
            }
            SimEvent::Arrival(process, event) => self.deliver(process, event),
            SimEvent::Broadcast { key, entry, but, until } => {
                for process in self.living.clone() {
                    if process.0 < until && !but.contains(&process) {
                        let event =
                            Event::Watched { key: key.clone(), entry: entry.clone(), retained: false };
                        self.deliver(process, event);
                    }
                }
            }
            SimEvent::ShowHeldBack(process) => self.deliver_delayed(process),
            SimEvent::Wake(process) => {
                let target = &mut self.processes[process.index()];
                if target.stopped {
                    target.pending_events.push(SimEvent::Wake(process));
                } else if target.wake.is_some_and(|wake| wake <= self.now) {
                    target.wake = None;
                    self.deliver(process, Event::Tick);
                }
            }
            SimEvent::Step(process, partition, request_id, step) => {
                self.step(process, partition, request_id, step)
            }
            SimEvent::TermOver(revision) => self.term_over(revision),
            SimEvent::Rows(results) => self.store_rows(&results),
            SimEvent::Planned(made, planned) => {
                if made > self.actions_dropped_until || self.actions_dropped_until == Time::ZERO {
                    self.carry_out_plan(planned);
                }
            }
            SimEvent::Traffic(partition) => {
                if self.traffic_enabled {
                    let kind = self.planned_kinds.remove(&partition).unwrap_or(MessageKind::Good);
                    self.publish(partition, kind);
                    self.plan_traffic(partition);
                }
            }
        }
    }

    fn deliver(&mut self, process: ProcessId, event: Event) {
        let now = self.now;
        let target = &mut self.processes[process.index()];
        if !target.alive {
            return;
        }
        if target.stopped {
            target.pending_events.push(SimEvent::Arrival(process, event));
            return;
        }
        if let Event::Written { request_id, result } = &event {
            if result.is_ok() {
                self.oracle.acknowledged(process, *request_id);
            }
            self.oracle.cursor_answered(process, *request_id, *result);
        }
        self.events += 1;
        let target = &mut self.processes[process.index()];
        self.hash =
            fold(self.hash, &[now.since_origin().as_micros() as u64, u64::from(process.0), shape(&event)]);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.6} {process} <- {event:?}", now.since_origin().as_secs_f64()));
        }
        let mut effects = Vec::new();
        target.worker.handle(target.clock(now), event, &mut effects);
        let quiet = effects.is_empty()
            && target.deadline == target.worker.next_deadline()
            && (target.wake.is_some() || target.deadline.is_none());
        if quiet {
            return;
        }
        target.deadline = target.worker.next_deadline();
        self.carry_out_all(process, effects);
    }

    /// Whatever a process wants done, in its order, for as long as it lives. Apart from `deliver`, because most events
    /// want nothing.
    #[inline(never)]
    fn carry_out_all(&mut self, process: ProcessId, effects: Vec<Effect>) {
        let now = self.now;
        let target = &self.processes[process.index()];
        if !target.worker.is_fenced(target.clock(now)) {
            self.oracle.unfenced(process);
        }
        for effect in effects {
            if !self.may_execute(process) {
                return;
            }
            if !self.processes[process.index()].lost_time {
                self.oracle.on_request(now, process, &effect);
            } else if let Effect::Write { request_id, .. } = &effect
                && request_id.purpose == Purpose::Heartbeat
            {
                self.oracle.on_request(now, process, &effect);
            }
            self.note_cursor_write(process, &effect);
            if let Some(trace) = &mut self.trace {
                trace.push(format!("{:>12.6} {process} -> {effect:?}", now.since_origin().as_secs_f64()));
            }
            self.carry_out(process, effect);
        }
        self.check_identity(process);
        self.schedule_deadline(process);
    }

    /// Tells the oracle which cursor a process is about to write, and when it releases its id by itself.
    fn note_cursor_write(&mut self, process: ProcessId, effect: &Effect) {
        match effect {
            Effect::Write { request_id, key: Key::Cursor(name), .. } => {
                self.oracle.cursor_asked(process, *request_id, self.numbers[name]);
            }
            Effect::Delete { request_id, .. } if request_id.purpose == Purpose::Release => {
                if let Some(holder) = self.processes[process.index()].holder {
                    self.oracle.left(process, holder);
                }
            }
            _ => {}
        }
    }

    /// Whether a process lives to carry out one more effect.
    fn may_execute(&mut self, process: ProcessId) -> bool {
        let target = &mut self.processes[process.index()];
        match &mut target.kill_after_effects {
            Some(0) => {
                self.kill(process);
                false
            }
            Some(left) => {
                *left -= 1;
                target.alive
            }
            None => target.alive,
        }
    }

    /// Two unfenced holders of one id, or an id lost without cause.
    fn check_identity(&mut self, process: ProcessId) {
        let now = self.now;
        let target = &self.processes[process.index()];
        let holder = target.worker.incarnation();
        let holds = holder.map(|holder| holder.id.0);
        self.processes[process.index()].holder = holder.or(target.holder);
        let target = &self.processes[process.index()];
        if holds == target.held {
            self.check_unique_id(process);
            return;
        }
        let taken_away = target.worker.history().last().is_some_and(|last| last.cause == "identity lost");
        if let Some(lost) = target.held.filter(|_| !target.disturbed && taken_away) {
            self.oracle.violate(11, now, format!("{process} lost worker id {lost} although it had no fault"));
        }
        self.processes[process.index()].held = holds;
        self.check_unique_id(process);
    }

    /// Nobody else may hold the id of an unfenced process.
    fn check_unique_id(&mut self, process: ProcessId) {
        let now = self.now;
        // The id is compared first: whose fence is open is known by a clock of its own each.
        let held = |process: ProcessId| {
            let target = &self.processes[process.index()];
            target.worker.incarnation().map(|holder| holder.id).filter(|_| !target.lost_time)
        };
        let unfenced = |process: ProcessId| {
            let target = &self.processes[process.index()];
            !target.worker.is_fenced(target.clock(now))
        };
        let Some(id) = held(process).filter(|_| unfenced(process)) else { return };
        let other =
            self.running().find(|&other| other != process && held(other) == Some(id) && unfenced(other));
        if let Some(other) = other {
            self.oracle.violate(10, now, format!("{process} and {other} both hold {id}"));
        }
    }

    fn schedule_deadline(&mut self, process: ProcessId) {
        let now = self.now;
        let target = &mut self.processes[process.index()];
        let due = target.worker.next_deadline().filter(|_| target.alive).map(|due| target.world_time(due));
        if due != target.wake {
            let earlier = due.is_some_and(|due| target.wake.is_none_or(|wake| due < wake || wake < now));
            // A later deadline replaces an earlier one when that is over.
            if earlier || due.is_none() || target.wake.is_none() {
                target.wake = due;
                if let Some(due) = due {
                    self.later(due.saturating_sub(now), SimEvent::Wake(process));
                }
            }
        }
    }

    fn carry_out(&mut self, process: ProcessId, effect: Effect) {
        match effect {
            Effect::Write { .. }
            | Effect::Delete { .. }
            | Effect::Read { .. }
            | Effect::ReadCursors { .. }
            | Effect::InspectLog { .. }
            | Effect::ReadLog { .. }
            | Effect::PublishDeadLetter { .. }
            | Effect::ListSubjects { .. } => self.send(process, effect),
            Effect::ReadRecoveryPoint { .. } | Effect::RecordDeadLetter { .. } => {
                self.ask_store(process, effect)
            }
            Effect::Process { request_id, partition, work } => {
                let partition = self.numbers[&partition];
                self.begin_run(process, partition, ProcessingRun::new(request_id, work));
            }
            Effect::Cancel { partition } => {
                let partition = self.numbers[&partition];
                self.processes[process.index()].handler.runs.remove(&partition);
                self.oracle.on_processing_ended(process, partition);
                self.oracle.doubt(process, partition);
            }
            Effect::Assign { version, added, removed } => {
                let subscriptions = &mut self.processes[process.index()].subscriptions;
                subscriptions.extend(added.iter().map(|name| self.numbers[name]));
                for name in &removed {
                    subscriptions.remove(&self.numbers[name]);
                }
                if !removed.is_empty() {
                    self.later(RELEASE_TIME, SimEvent::Arrival(process, Event::Released(version)));
                }
            }
            Effect::Drain => self.later(RELEASE_TIME, SimEvent::Arrival(process, Event::Drained)),
            Effect::Exit => self.end(process),
            Effect::Fence => {
                self.drop_runs(process);
                self.oracle.fenced(process);
            }
            Effect::Notice(notice) => self.notice(process, &notice),
            Effect::Grant { .. } | Effect::Warn(_) => {}
        }
    }

    fn micros(&self) -> u64 {
        // The broker's clock has nothing to do with anybody else's.
        (1_700_000_000_000_000 + self.now.since_origin().as_micros() as u64)
            .saturating_add_signed(self.broker_offset)
    }

    fn later(&mut self, delay: Duration, happening: SimEvent) {
        self.queue.plan(self.now + delay, happening);
    }
}

/// FNV-1a over whole words.
fn fold(hash: u64, words: &[u64]) -> u64 {
    words.iter().fold(hash, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3))
}

/// What kind of event it was, for the trace.
fn shape(event: &Event) -> u64 {
    let answer = |kind: u64, request_id: &RequestId, good: bool| {
        kind + (request_id.serial << 8) + (u64::from(good) << 7)
    };
    match event {
        Event::Tick => 1,
        Event::Synced => 2,
        Event::Watched { entry, .. } => 3 + entry.as_ref().map_or(0, |entry| entry.revision.0 << 8),
        Event::Written { request_id, result } => answer(4, request_id, result.is_ok()),
        Event::Fetched { request_id, result } => answer(5, request_id, result.is_ok()),
        Event::Cursors { request_id, result } => answer(6, request_id, result.is_ok()),
        Event::LogInspected { request_id, result } => answer(7, request_id, result.is_ok()),
        Event::RecoveryPointRead { request_id, result } => answer(8, request_id, result.is_ok()),
        Event::LogRead { request_id, result } => answer(9, request_id, result.is_ok()),
        Event::Processed { request_id, outcome } => answer(10, request_id, *outcome == ProcessOutcome::Done),
        Event::DeadLetterStep { request_id, happened } => answer(11, request_id, *happened),
        Event::Subjects { request_id, result } => answer(12, request_id, result.is_ok()),
        Event::WakeUp(_) => 13,
        Event::Partitions(_) => 14,
        Event::Released(version) => 15 + (version.0 << 8),
        Event::Drained => 16,
        Event::Shutdown => 17,
    }
}
