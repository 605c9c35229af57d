//! The world: a virtual clock, a broker, a log, a store, processes, and what happens between them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster::core::types::{
    AssignmentMap, Entry, Key, Pod, Revision, Time, Value, Version, WorkerId,
};
use phalanx_cluster::core::{
    Condition, Config, Effect, Event, Guard, Notice, Outcome, Page, Purpose, ReadError, Subjects, Survey,
    Ticket, Worker, WorkerState, WriteError,
};

use crate::broker::Broker;
use crate::faults::Shake;
use crate::handler::{Handler, Lookup, Run};
use crate::ledger::{Counts, Ledger, Violation};
use crate::log::{Kind, Log, decode, encode};
use crate::process::{Bucket, Clock, Process};
use crate::queue::Queue;
use crate::rng::Rng;
use crate::store::{Results, Rules, Store, context_name, mix};

/// One way between a process and the broker.
const LATENCY: Duration = Duration::from_millis(1);
/// An answer that has not come by then does not count any more.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long the application takes to let go of what it has lost, or to drain.
const LETTING_GO: Duration = Duration::from_millis(50);
/// How long the store is waited for.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// A process that something befell is not expected to be alone for this much longer.
const AFTERMATH: Duration = Duration::from_secs(60);

/// The broker forgets a heartbeat that is older, in microseconds.
const HEARTBEAT_TTL: u64 = 30_000_000;

/// How a world is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The configuration of every worker.
    pub config: Config,
    /// How many chambers there are, named `tool:0`, `tool:1`, ….
    pub partitions: usize,
    /// How long the log keeps a message.
    pub retention: Duration,
    /// The mean time between two messages of one chamber; none for a silent fab.
    pub traffic: Option<Duration>,
    /// The seed of the traffic, and of how long messages take.
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        let retention = Duration::from_secs(7 * 24 * 3600);
        Self { config: Config::default(), partitions: 300, retention, traffic: None, seed: 1 }
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
    /// How many chambers changed their owner.
    pub moved: usize,
}

/// Something to come, planned from outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Planned {
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
    /// SIGKILL for whoever leads then.
    KillLeader,
    /// SIGKILL for whoever was started last.
    KillNewest,
}

/// A step of a message that is being processed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
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
pub(crate) enum Happening {
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
    Step(ProcessId, u32, Ticket, Step),
    /// Results reach the store, from whomever they come.
    Rows(Box<Results>),
    /// A chamber ends a run.
    Traffic(u32),
    /// Something that was planned from outside.
    Planned(Time, Planned),
}

/// A simulated cluster.
#[derive(Debug)]
pub struct World {
    setup: Setup,
    now: Time,
    queue: Queue<Happening>,
    broker: Broker,
    log: Log,
    store: Store,
    store_away_until: Time,
    /// Until then writes to the store get stuck, and land later.
    store_late_until: Time,
    store_lag: Duration,
    strategy: u64,
    processes: Vec<Process>,
    living: Vec<ProcessId>,
    most_processes: usize,
    /// Processes with a fleet size of their own.
    odd: Vec<ProcessId>,
    published: Vec<Publication>,
    partitions: Arc<[(Arc<str>, u64)]>,
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    /// The publisher's next number for each chamber.
    next_number: Vec<u64>,
    unlisted: Vec<u32>,
    /// How the next messages of a chamber behave.
    planned_kinds: BTreeMap<u32, Kind>,
    ledger: Ledger,
    traffic: Rng,
    flowing: bool,
    /// Gives every machine a clock of its own.
    clocks: Option<Rng>,
    /// How far the broker's clock is off, in microseconds.
    broker_offset: i64,
    /// Chooses lost and late answers; none in a world without them.
    shaker: Option<Rng>,
    /// The kinds of lost and late answers that there are.
    shakes: Vec<Shake>,
    shaken: BTreeMap<&'static str, u64>,
    notices: BTreeMap<&'static str, u64>,
    /// Plans made until then are forgone.
    forgone: Time,
    hash: u64,
    trace: Option<Vec<String>>,
    pub(crate) events: u64,
}

impl World {
    /// An empty world at second 0.
    pub fn new(setup: Setup) -> Self {
        // Weights spread over a factor of 120, as chambers have them.
        let weight = |i: usize| 30_000 * (1 + (i as u64).wrapping_mul(2_654_435_761) % 120);
        let names: Vec<Arc<str>> = (0..setup.partitions).map(|i| Arc::from(format!("tool:{i}"))).collect();
        let partitions = names.iter().enumerate().map(|(i, name)| (name.clone(), weight(i))).collect();
        let numbers = names.iter().enumerate().map(|(i, name)| (name.clone(), i as u32)).collect();
        let rules = Rules {
            higher_wins: setup.config.keeps(Guard::HigherTakeWins),
            take_counts: setup.config.keeps(Guard::TakeThatCounts),
        };
        let mut world = Self {
            now: Time::ZERO,
            queue: Queue::new(),
            broker: Broker::default(),
            log: Log::new(1, setup.retention),
            store: Store::new(rules),
            store_away_until: Time::ZERO,
            store_late_until: Time::ZERO,
            store_lag: Duration::ZERO,
            strategy: 0,
            processes: Vec::new(),
            living: Vec::new(),
            most_processes: usize::MAX,
            odd: Vec::new(),
            published: Vec::new(),
            partitions,
            next_number: vec![0; names.len()],
            names,
            numbers,
            unlisted: Vec::new(),
            planned_kinds: BTreeMap::new(),
            ledger: Ledger::default(),
            traffic: Rng::new(setup.seed),
            flowing: setup.traffic.is_some(),
            clocks: None,
            broker_offset: 0,
            shaker: None,
            shakes: Vec::new(),
            shaken: BTreeMap::new(),
            notices: BTreeMap::new(),
            forgone: Time::ZERO,
            hash: 0xcbf2_9ce4_8422_2325,
            trace: None,
            events: 0,
            setup,
        };
        for chamber in 0..world.names.len() as u32 {
            world.plan_traffic(chamber);
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
            trace.push(format!("{:>12.6} {}", now.as_secs_f64(), what()));
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Every new version of the map so far.
    pub fn publications(&self) -> &[Publication] {
        &self.published
    }

    /// Forgets the publications so far: what follows is what a scenario is about.
    pub fn forget_publications(&mut self) {
        self.published.clear();
    }

    /// The worker of a process.
    pub fn worker(&self, process: ProcessId) -> &Worker {
        &self.processes[process.index()].worker
    }

    /// Whether a process has not ended.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.processes[process.index()].alive
    }

    /// Every process that has not ended.
    pub fn living(&self) -> impl Iterator<Item = ProcessId> {
        self.living.iter().copied()
    }

    /// The process that leads.
    pub fn leader(&self) -> Option<ProcessId> {
        self.living().find(|&process| self.worker(process).is_leader())
    }

    /// The process that holds an id.
    pub fn holder_of(&self, id: u32) -> Option<ProcessId> {
        self.living().find(|&process| self.worker(process).holder().is_some_and(|holder| holder.id.0 == id))
    }

    /// The map as it is stored.
    pub fn map(&self) -> Option<&Arc<AssignmentMap>> {
        match &self.broker.get(&Key::Map)?.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The owner of a chamber, by the stored map.
    pub fn owner_of(&self, chamber: u32) -> Option<ProcessId> {
        let owner = self.map()?.assignments.get(&self.names[chamber as usize])?.owner;
        self.holder_of(owner.0)
    }

    /// A chamber that a worker owns, by the stored map.
    pub fn chamber_of(&self, id: u32) -> Option<u32> {
        let map = self.map()?;
        let (name, _) = map.assignments.iter().find(|(_, assignment)| assignment.owner == WorkerId(id))?;
        self.numbers.get(name).copied()
    }

    /// Gives a chamber to a worker by a new version of the map, as a leader would.
    pub fn reassign(&mut self, chamber: u32, id: u32) {
        let Some(map) = self.map() else { return };
        let mut next = AssignmentMap { version: Version(map.version.0 + 1), moved: 1, ..(**map).clone() };
        if let Some(assignment) = next.assignments.get_mut(&self.names[chamber as usize]) {
            assignment.owner = WorkerId(id);
        }
        self.command(&Key::Map, Value::Map(Arc::new(next)));
    }

    /// Whether results of a message have reached the store, whoever wrote them.
    pub fn has_rows(&self, chamber: u32, number: u64) -> bool {
        self.store.newest(chamber).is_some_and(|(_, state)| state.number >= number)
    }

    /// Whether a process is processing a message of a chamber.
    pub fn is_processing(&self, process: ProcessId, chamber: u32) -> bool {
        self.processes[process.index()].handler.runs.contains_key(&chamber)
    }

    /// A process is expected to do well although something befell it: no pause and no time-out was among it.
    pub fn trust(&mut self, process: ProcessId) {
        self.processes[process.index()].disturbed_until = Time::ZERO;
        self.processes[process.index()].disturbed = false;
    }

    /// The next request of a process for this purpose reaches the broker a second time, so much later.
    pub fn repeat_request(&mut self, process: ProcessId, purpose: Purpose, after: Duration) {
        self.processes[process.index()].repeats = Some((purpose, after));
    }

    /// Every chamber of a worker, by the stored map.
    pub fn chambers_of(&self, id: u32) -> Vec<u32> {
        let owned = self.map().into_iter().flat_map(|map| &map.assignments);
        owned.filter(|(_, a)| a.owner == WorkerId(id)).map(|(name, _)| self.numbers[name]).collect()
    }

    /// How many chambers have ever been there.
    pub fn chambers(&self) -> u32 {
        self.names.len() as u32
    }

    /// How many chambers were listed at the beginning.
    pub fn listed(&self) -> u32 {
        self.setup.partitions as u32
    }

    /// How long the log keeps messages when nothing is wrong.
    pub fn retention(&self) -> Duration {
        self.setup.retention
    }

    /// A promise that somebody outside has seen broken.
    pub fn violate(&mut self, invariant: u32, what: String) {
        self.ledger.violate(invariant, self.now, what);
    }

    /// What was published, committed and lost so far.
    pub fn counts(&self) -> Counts {
        self.ledger.counts
    }

    /// Faults of answers and writes that the shaking has caused so far, by kind.
    pub fn shaken(&self) -> &BTreeMap<&'static str, u64> {
        &self.shaken
    }

    /// How often workers reported what is counted: `expired`, `logReplaced`, `adopted`.
    pub fn noticed(&self, what: &str) -> u64 {
        self.notices.get(what).copied().unwrap_or(0)
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
        let worker = Worker::new(clock.shows(self.now), pod, config);
        self.processes.push(Process::new(worker, clock));
        self.living.push(process);
        self.ledger.started(self.now);
        self.note(|| format!("{process} starts"));
        self.resync(process);
        process
    }

    /// A process is shown everything there is, as at the beginning of a watch.
    fn resync(&mut self, process: ProcessId) {
        self.broker.expire_heartbeats(self.micros().saturating_sub(HEARTBEAT_TTL));
        let watched = self.broker.entries().filter(|(key, _)| !matches!(key, Key::Cursor(_)));
        let retained: Vec<Event> = watched
            .map(|(key, entry)| Event::Watched {
                key: key.clone(),
                entry: Some(entry.clone()),
                retained: true,
            })
            .collect();
        for event in retained.into_iter().chain([Event::Partitions(self.partitions.clone()), Event::Synced]) {
            self.later(LATENCY, Happening::Arrival(process, event));
        }
    }

    /// The watch of a process begins anew: it is shown every value again, as old ones.
    pub fn begin_watch_anew(&mut self, process: ProcessId) {
        self.resync(process);
    }

    /// `kill -9`: what it has sent arrives, it sends and hears nothing more.
    pub fn kill(&mut self, process: ProcessId) {
        if !self.is_alive(process) {
            return;
        }
        self.note(|| format!("{process} is killed"));
        let runs: Vec<u32> = self.processes[process.index()].handler.runs.keys().copied().collect();
        for chamber in runs {
            self.ledger.dies(process, chamber);
        }
        self.end(process);
    }

    fn end(&mut self, process: ProcessId) {
        let target = &mut self.processes[process.index()];
        target.alive = false;
        target.mailbox.clear();
        target.handler.drop_all();
        self.living.retain(|&living| living != process);
    }

    /// SIGTERM: it leaves in its own order.
    pub fn terminate(&mut self, process: ProcessId) {
        self.note(|| format!("{process} is told to leave"));
        self.deliver(process, Event::Shutdown);
    }

    /// SIGSTOP.
    pub fn stop(&mut self, process: ProcessId) {
        self.note(|| format!("{process} stands still"));
        let target = &mut self.processes[process.index()];
        target.stopped = true;
        target.disturb(Time::MAX);
    }

    /// The machine of a process is suspended: its clock stands still too, unless it is one that runs on.
    pub fn freeze(&mut self, process: ProcessId) {
        self.stop(process);
        self.processes[process.index()].frozen = Some(self.now);
    }

    /// SIGCONT: everything that arrived meanwhile is handled now, after the clock has jumped.
    pub fn resume(&mut self, process: ProcessId) {
        self.note(|| format!("{process} wakes"));
        let now = self.now;
        let target = &mut self.processes[process.index()];
        if !target.alive || !target.stopped {
            return;
        }
        target.wake_up(now);
        target.disturbed_until = now + AFTERMATH;
        let mailbox = std::mem::take(&mut target.mailbox);
        for happening in mailbox {
            self.happen(happening);
        }
        self.deliver(process, Event::Tick);
    }

    /// Every machine that starts from now on has a clock of its own: hours off, and drifting.
    pub fn skew_clocks(&mut self, seed: u64) {
        self.clocks = Some(Rng::new(seed));
    }

    /// A process is killed after it has carried out so many more effects.
    pub fn kill_after_effects(&mut self, process: ProcessId, effects: u32) {
        self.processes[process.index()].dies_after = Some(effects);
    }

    /// From now on answers may be lost, and writes may land late, in these ways.
    pub fn shake(&mut self, seed: u64, kinds: &[Shake]) {
        self.shaker = Some(Rng::new(seed));
        self.shakes = kinds.to_vec();
    }

    /// Nothing more is lost or late, every link works, the store answers, and messages behave.
    pub fn calm(&mut self) {
        self.shaker = None;
        self.shakes.clear();
        self.planned_kinds.clear();
        let now = self.now;
        self.store_away_until = self.store_away_until.min(now);
        self.store_late_until = self.store_late_until.min(now);
        for process in &mut self.processes {
            process.cut_in = process.cut_in.min(now);
            process.cut_out = process.cut_out.min(now);
            process.slowness = Duration::ZERO;
            process.watch_delay = Duration::ZERO;
            process.mute = false;
            process.drops_map = false;
            process.held_back.iter_mut().for_each(|(at, ..)| *at = now);
            process.dies_after = None;
        }
        for process in self.living.clone() {
            self.show_held_back(process);
        }
    }

    /// Cuts a process off from the broker. What it asks stays unanswered; what it watches arrives afterwards.
    pub fn cut(&mut self, process: ProcessId, until: Time) {
        self.note(|| format!("{process} is cut off until {:.3}", until.as_secs_f64()));
        let target = &mut self.processes[process.index()];
        target.cut_in = target.cut_in.max(until);
        target.cut_out = target.cut_out.max(until);
        target.disturb(until + AFTERMATH);
    }

    /// Nothing that a process sends arrives; it hears everything.
    pub fn cut_out(&mut self, process: ProcessId, until: Time) {
        let target = &mut self.processes[process.index()];
        target.cut_out = target.cut_out.max(until);
        target.disturb(until + AFTERMATH);
    }

    /// Nothing reaches a process; what it sends arrives.
    pub fn cut_in(&mut self, process: ProcessId, until: Time) {
        let target = &mut self.processes[process.index()];
        target.cut_in = target.cut_in.max(until);
        target.disturb(until + AFTERMATH);
    }

    /// Answers to a process take this much longer; after two seconds nobody waits for them.
    pub fn slow_down(&mut self, process: ProcessId, by: Duration) {
        let now = self.now;
        let target = &mut self.processes[process.index()];
        target.slowness = by;
        target.disturbed_until = target.disturbed_until.max(now + AFTERMATH);
    }

    /// The heartbeats of a process get lost, and nothing else does.
    pub fn lose_heartbeats(&mut self, process: ProcessId) {
        self.processes[process.index()].mute = true;
        self.processes[process.index()].disturb(Time::MAX);
    }

    /// Its heartbeats arrive again.
    pub fn carry_heartbeats(&mut self, process: ProcessId) {
        let now = self.now;
        self.processes[process.index()].mute = false;
        self.processes[process.index()].disturbed_until = now + AFTERMATH;
    }

    /// A process is shown what it watches that much later; its requests are answered as ever.
    pub fn delay_watch(&mut self, process: ProcessId, by: Duration) {
        let now = self.now;
        self.processes[process.index()].watch_delay = by;
        self.processes[process.index()].disturb(if by.is_zero() { now + AFTERMATH } else { Time::MAX });
    }

    /// The next change of the map is not shown to a process.
    pub fn drop_map_event(&mut self, process: ProcessId) {
        let until = self.now + AFTERMATH;
        self.processes[process.index()].drops_map = true;
        self.processes[process.index()].disturb(until);
    }

    /// A value is gone, as if it had expired or its bucket were lost.
    pub fn lose(&mut self, key: &Key) {
        if let Some(revision) = self.broker.get(key).map(|entry| entry.revision) {
            let deleted = self.broker.delete(self.micros(), key, revision);
            debug_assert!(deleted.is_ok(), "that revision was there");
            self.tell_watchers(key);
        }
    }

    /// The bucket of the cursors is deleted and made anew.
    pub fn lose_cursors(&mut self) {
        let cursors: Vec<Key> = self
            .broker
            .entries()
            .map(|(key, _)| key)
            .filter(|key| matches!(key, Key::Cursor(_)))
            .cloned()
            .collect();
        cursors.iter().for_each(|key| self.lose(key));
        self.ledger.cursors_lost();
        self.disturb_everybody();
    }

    /// The log is deleted and made anew: everything in it is gone.
    pub fn recreate_log(&mut self) {
        let gone = self.log.recreate(self.micros());
        self.ledger.log_lost(self.log.info().stream, &gone);
        self.disturb_everybody();
    }

    /// The log loses its newest messages.
    pub fn lose_tail(&mut self, count: usize) {
        let gone = self.log.lose_tail(count);
        self.ledger.log_lost(self.log.info().stream, &gone);
        self.disturb_everybody();
    }

    /// From now on the log keeps messages for this long.
    pub fn keep_messages_for(&mut self, retention: Duration) {
        self.log.retention = retention;
        self.expire();
    }

    fn expire(&mut self) {
        let gone = self.log.expire(self.now);
        self.ledger.expired(&gone);
    }

    fn disturb_everybody(&mut self) {
        let until = self.now + AFTERMATH;
        self.processes.iter_mut().for_each(|process| process.disturb(until));
    }

    /// The broker's clock jumps.
    pub fn step_broker_clock(&mut self, by_micros: i64) {
        self.broker_offset += by_micros;
    }

    /// The store does not answer until then.
    pub fn store_away(&mut self, until: Time) {
        self.store_away_until = self.store_away_until.max(until);
    }

    /// Until then what is written to the store lands so much later, and its writer waits in vain.
    pub fn store_late(&mut self, until: Time, by: Duration) {
        self.store_late_until = self.store_late_until.max(until);
        self.store_lag = by;
    }

    /// From now on messages are processed by another strategy.
    pub fn change_strategy(&mut self) {
        self.strategy += 1;
    }

    /// The broker is away for everybody.
    pub fn cut_all(&mut self, until: Time) {
        for process in self.living.clone() {
            self.cut(process, until);
        }
    }

    /// The next message of a chamber will behave like this.
    pub fn plan_kind(&mut self, chamber: u32, kind: Kind) {
        self.planned_kinds.insert(chamber, kind);
    }

    /// Publishes a message for a chamber now. Gives its number.
    pub fn publish(&mut self, chamber: u32, kind: Kind) -> u64 {
        let number = self.next_number[chamber as usize];
        self.next_number[chamber as usize] += 1;
        self.append(chamber, number, kind);
        number
    }

    /// Publishes a message again, as a tool does that did not hear the answer.
    pub fn publish_again(&mut self, chamber: u32, number: u64) {
        self.append(chamber, number, Kind::Good);
    }

    /// How many messages were published for a chamber.
    pub fn published_for(&self, chamber: u32) -> u64 {
        self.next_number[chamber as usize]
    }

    /// No more messages are published.
    pub fn silence(&mut self) {
        self.flowing = false;
    }

    /// A chamber that is not in the list begins to publish.
    pub fn add_unlisted_chamber(&mut self) -> u32 {
        let chamber = self.names.len() as u32;
        let name: Arc<str> = format!("tool:{chamber}").into();
        self.names.push(name.clone());
        self.numbers.insert(name, chamber);
        self.next_number.push(0);
        self.unlisted.push(chamber);
        self.plan_traffic(chamber);
        chamber
    }

    /// A chamber is removed from the list; what it has published must still be processed.
    pub fn unlist(&mut self, chamber: u32) {
        self.unlisted.push(chamber);
        let name = self.names[chamber as usize].clone();
        let listed: Arc<[_]> = self.partitions.iter().filter(|(known, _)| *known != name).cloned().collect();
        self.partitions = listed.clone();
        for process in self.living.clone() {
            self.later(LATENCY, Happening::Arrival(process, Event::Partitions(listed.clone())));
        }
    }

    fn append(&mut self, chamber: u32, number: u64, kind: Kind) {
        self.expire();
        let id = if self.setup.config.keeps(Guard::MessageIds) { (chamber, number) } else { (0, number) };
        let (now, micros) = (self.now, self.micros());
        // Without the rule the broker takes it for a repetition and acknowledges it all the same.
        let acknowledged =
            self.log.append(now, micros, chamber, id, context_name(number), encode(number, kind));
        match acknowledged {
            Some(sequence) => self.ledger.published(chamber, sequence, number, kind),
            None if id.0 != chamber => {
                self.ledger.violate(
                    1,
                    now,
                    format!("message {number} of chamber {chamber} was never stored"),
                );
            }
            None => {}
        }
        let name = self.names[chamber as usize].clone();
        for process in self.living.clone() {
            let target = &self.processes[process.index()];
            if target.bells.contains(&chamber) && target.cut_in <= now {
                self.later(LATENCY, Happening::Arrival(process, Event::Rung(name.clone())));
            }
        }
    }

    fn plan_traffic(&mut self, chamber: u32) {
        if let Some(mean) = self.setup.traffic {
            let mean = mean.as_millis() as u64;
            let wait = self.traffic.between(mean / 2, mean * 3 / 2);
            self.later(Duration::from_millis(wait), Happening::Traffic(chamber));
        }
    }

    /// Promises broken so far.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.ledger.violations)
    }

    /// Whether a message that does harm is still to be resolved.
    pub fn has_harmful_messages(&self) -> bool {
        self.ledger.has_harmful_messages()
    }

    /// Whether a promise was broken.
    pub fn has_violations(&self) -> bool {
        !self.ledger.violations.is_empty()
    }

    /// Counts what nobody resolved and what went unreported.
    pub fn close_books(&mut self) {
        self.expire();
        let map = self.map().cloned();
        let owned = |chamber: usize| {
            map.as_ref().is_some_and(|map| map.assignments.contains_key(&self.names[chamber]))
        };
        self.ledger.close(self.now, owned);
    }

    /// A hash over everything that happened.
    pub fn trace_hash(&self) -> u64 {
        self.hash
    }

    /// A person's command, such as the fleet size.
    pub fn command(&mut self, key: &Key, value: Value) {
        let stored = self.broker.write(self.micros(), key, value, Condition::None);
        debug_assert!(stored.is_ok(), "a command without a condition");
        self.tell_watchers(key);
    }

    /// A watch is ordered: what was held back is shown before anything newer of the same bucket.
    fn show_held_back(&mut self, process: ProcessId) {
        let now = self.now;
        let due: Vec<_> =
            self.processes[process.index()].held_back.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, _, event) in due {
            self.deliver(process, event);
        }
    }

    /// Lets time pass up to that second.
    pub fn run_until(&mut self, end: Time) {
        while let Some((at, happening)) = self.queue.next(end) {
            self.now = self.now.max(at);
            self.happen(happening);
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
                    self.happen(happening);
                }
                None => {
                    self.now = end;
                    return !goes_on(self);
                }
            }
        }
        true
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Request(process, effect) => self.answer(process, effect),
            Happening::LateRequest(process, effect) => {
                self.apply(process, effect);
            }
            Happening::Arrival(process, event) => self.deliver(process, event),
            Happening::Broadcast { key, entry, but, until } => {
                for process in self.living.clone() {
                    if process.0 < until && !but.contains(&process) {
                        let event =
                            Event::Watched { key: key.clone(), entry: entry.clone(), retained: false };
                        self.deliver(process, event);
                    }
                }
            }
            Happening::ShowHeldBack(process) => self.show_held_back(process),
            Happening::Wake(process) => {
                let target = &mut self.processes[process.index()];
                if target.stopped {
                    target.mailbox.push(Happening::Wake(process));
                } else if target.wake.is_some_and(|wake| wake <= self.now) {
                    target.wake = None;
                    self.deliver(process, Event::Tick);
                }
            }
            Happening::Step(process, chamber, ticket, step) => self.step(process, chamber, ticket, step),
            Happening::Rows(results) => self.store_rows(&results),
            Happening::Planned(made, planned) => {
                if made > self.forgone || self.forgone.is_zero() {
                    self.carry_out_plan(planned);
                }
            }
            Happening::Traffic(chamber) => {
                if self.flowing {
                    let kind = self.planned_kinds.remove(&chamber).unwrap_or(Kind::Good);
                    self.publish(chamber, kind);
                    self.plan_traffic(chamber);
                }
            }
        }
    }

    /// Plans something for later.
    pub fn plan(&mut self, delay: Duration, planned: Planned) {
        self.later(delay, Happening::Planned(self.now, planned));
    }

    /// Planned starts make no more processes than this: whoever keeps replicas starts none beside those that live.
    pub fn limit_processes(&mut self, most: usize) {
        self.most_processes = most;
    }

    /// Kills whoever was started with a fleet size of its own.
    pub fn kill_odd_ones(&mut self) {
        for odd in std::mem::take(&mut self.odd) {
            self.kill(odd);
        }
    }

    /// What was planned and has not happened will not happen.
    pub fn forgo_plans(&mut self) {
        self.forgone = self.now;
    }

    fn carry_out_plan(&mut self, planned: Planned) {
        match planned {
            Planned::Start => {
                if self.living.len() < self.most_processes {
                    self.start();
                }
            }
            Planned::StartWithSize(fleet_size) => {
                let config = Config { fleet_size, ..self.setup.config.clone() };
                let odd = self.start_with(config);
                self.odd.push(odd);
            }
            Planned::Kill(process) => self.kill(process),
            Planned::Terminate(process) => self.terminate(process),
            Planned::Resume(process) => self.resume(process),
            Planned::Mend(process) => {
                self.slow_down(process, Duration::ZERO);
                self.carry_heartbeats(process);
                self.delay_watch(process, Duration::ZERO);
            }
            Planned::Retention(retention) => self.keep_messages_for(retention),
            Planned::FleetSize(Some(size)) => self.command(&Key::FleetSize, Value::FleetSize(size)),
            Planned::FleetSize(None) => self.lose(&Key::FleetSize),
            Planned::PublishAgain(chamber, number) => self.publish_again(chamber, number),
            Planned::KillLeader => self.leader().into_iter().for_each(|leader| self.kill(leader)),
            Planned::KillNewest => {
                self.living.last().copied().into_iter().for_each(|newest| self.kill(newest))
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
            target.mailbox.push(Happening::Arrival(process, event));
            return;
        }
        if let Event::Written { ticket, result: Ok(_) } = &event {
            self.ledger.acknowledged(process, *ticket);
        }
        self.events += 1;
        let target = &mut self.processes[process.index()];
        self.hash = fold(self.hash, &[now.as_micros() as u64, u64::from(process.0), shape(&event)]);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.6} {process} <- {event:?}", now.as_secs_f64()));
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
        for effect in effects {
            if !self.survives_one_more(process) {
                return;
            }
            if !self.processes[process.index()].lost_time {
                self.ledger.asked(now, process, &effect);
            } else if let Effect::Write { ticket, .. } = &effect
                && ticket.purpose == Purpose::Heartbeat
            {
                self.ledger.asked(now, process, &effect);
            }
            if let Some(trace) = &mut self.trace {
                trace.push(format!("{:>12.6} {process} -> {effect:?}", now.as_secs_f64()));
            }
            self.carry_out(process, effect);
        }
        self.check_identity(process);
        self.set_alarm(process);
    }

    /// Whether a process lives to carry out one more effect.
    fn survives_one_more(&mut self, process: ProcessId) -> bool {
        let target = &mut self.processes[process.index()];
        match &mut target.dies_after {
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
        let holds = target.worker.holder().map(|holder| holder.id.0);
        if holds == target.held {
            self.check_lonely(process);
            return;
        }
        let taken_away = target.worker.history().last().is_some_and(|last| last.cause == "identity lost");
        if let Some(lost) = target.held.filter(|_| !target.disturbed && taken_away) {
            self.ledger.violate(
                11,
                now,
                format!("{process} lost defender-{lost} although nothing befell it"),
            );
        }
        self.processes[process.index()].held = holds;
        self.check_lonely(process);
    }

    /// Nobody else may hold the id of an unfenced process.
    fn check_lonely(&mut self, process: ProcessId) {
        let now = self.now;
        let unfenced = |process: ProcessId| {
            let target = &self.processes[process.index()];
            if target.lost_time {
                return None;
            }
            target
                .worker
                .holder()
                .map(|holder| holder.id)
                .filter(|_| !target.worker.is_fenced(target.clock(now)))
        };
        let Some(id) = unfenced(process) else { return };
        let other = self.living().find(|&other| other != process && unfenced(other) == Some(id));
        if let Some(other) = other {
            self.ledger.violate(10, now, format!("{process} and {other} both hold {id}"));
        }
    }

    fn set_alarm(&mut self, process: ProcessId) {
        let now = self.now;
        let target = &mut self.processes[process.index()];
        let due = target.worker.next_deadline().filter(|_| target.alive).map(|due| target.world_time(due));
        if due != target.wake {
            let earlier = due.is_some_and(|due| target.wake.is_none_or(|wake| due < wake || wake < now));
            // A later alarm replaces an earlier one when that has rung.
            if earlier || due.is_none() || target.wake.is_none() {
                target.wake = due;
                if let Some(due) = due {
                    self.later(due.saturating_sub(now), Happening::Wake(process));
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
            | Effect::SurveyLog { .. }
            | Effect::ReadLog { .. }
            | Effect::PublishDead { .. }
            | Effect::ListSubjects { .. } => self.send(process, effect),
            Effect::ReadOrigin { .. } | Effect::Bury { .. } => self.ask_store(process, effect),
            Effect::Process { ticket, partition, work } => {
                let chamber = self.numbers[&partition];
                self.begin_run(process, chamber, Run::new(ticket, work));
            }
            Effect::Cancel { partition } => {
                let chamber = self.numbers[&partition];
                self.processes[process.index()].handler.runs.remove(&chamber);
                self.ledger.ends(process, chamber);
            }
            Effect::Assign { version, added, removed } => {
                let bells = &mut self.processes[process.index()].bells;
                bells.extend(added.iter().map(|name| self.numbers[name]));
                for name in &removed {
                    bells.remove(&self.numbers[name]);
                }
                if !removed.is_empty() {
                    self.later(LETTING_GO, Happening::Arrival(process, Event::LetGo(version)));
                }
            }
            Effect::Drain => self.later(LETTING_GO, Happening::Arrival(process, Event::Drained)),
            Effect::Exit => self.end(process),
            Effect::Fence => {
                self.drop_runs(process);
            }
            Effect::Notice(notice) => self.notice(process, &notice),
            Effect::Unfence | Effect::Grant { .. } | Effect::Warn(_) => {}
        }
    }

    fn drop_runs(&mut self, process: ProcessId) {
        let chambers: Vec<u32> = self.processes[process.index()].handler.runs.keys().copied().collect();
        for chamber in chambers {
            self.ledger.ends(process, chamber);
        }
        self.processes[process.index()].handler.drop_all();
    }

    fn notice(&mut self, process: ProcessId, notice: &Notice) {
        let kind = match notice {
            Notice::Committed { partition, .. } => {
                let chamber = self.numbers[partition];
                self.processes[process.index()].handler.committed(chamber);
                return;
            }
            Notice::Expired { partition, after, before } => {
                self.ledger.reported_expired(self.numbers[partition], *after, *before);
                "expired"
            }
            Notice::LogReplaced { .. } => "logReplaced",
            Notice::Adopted { .. } => "adopted",
        };
        *self.notices.entry(kind).or_default() += 1;
    }

    fn begin_run(&mut self, process: ProcessId, chamber: u32, mut run: Run) {
        let now = self.now;
        let processes = &self.processes;
        self.ledger.begins(now, process, chamber, &run.work, |other| {
            let other = &processes[other.index()];
            other.alive && other.disturbed_until <= now
        });
        let (_, kind) = decode(&run.work.message.payload);
        let ticket = run.ticket;
        let milliseconds = |ms: u64| Duration::from_millis(ms);
        let (wait, step) = match kind {
            Kind::Killer => (milliseconds(100), Step::Die),
            Kind::Broken => (milliseconds(10), Step::Broken),
            Kind::Flaky(times) if run.work.attempt <= u32::from(times) => (milliseconds(50), Step::Fail),
            Kind::Endless => (self.setup.config.process_timeout, Step::TimeOut),
            Kind::Good | Kind::Flaky(_) => (milliseconds(self.traffic.between(2, 200)), Step::Store),
        };
        if self.store_away_until > now {
            self.ledger.ends(process, chamber);
            let event = Event::Processed { ticket, outcome: Outcome::Unavailable };
            self.later(STORE_TIMEOUT, Happening::Arrival(process, event));
            return;
        }
        if run.work.fresh {
            self.processes[process.index()].handler.forget(chamber);
        }
        // The chart state is read at the beginning; the results of it are written at the end.
        if matches!(step, Step::Store) {
            let exact = self.setup.config.keeps(Guard::StateAtCommitted);
            let lookup = if exact { Lookup::Exact } else { Lookup::Newest };
            let handler = &mut self.processes[process.index()].handler;
            run.results = handler.compute(chamber, &run.work, self.strategy, lookup, &self.store);
            if run.results.is_none() {
                let at = run.work.committed;
                let what = format!("{process} finds no chart state of chamber {chamber} at {at:?}");
                self.ledger.violate(5, now, what);
            }
        }
        self.processes[process.index()].handler.runs.insert(chamber, run);
        self.later(wait, Happening::Step(process, chamber, ticket, step));
    }

    fn step(&mut self, process: ProcessId, chamber: u32, ticket: Ticket, step: Step) {
        let now = self.now;
        let target = &mut self.processes[process.index()];
        if !target.alive {
            return;
        }
        if target.stopped {
            target.mailbox.push(Happening::Step(process, chamber, ticket, step));
            return;
        }
        if target.handler.runs.get(&chamber).is_none_or(|run| run.ticket != ticket) {
            return;
        }
        // A handler is polled only while its worker is unfenced.
        if target.worker.is_fenced(target.clock(now)) {
            target.handler.runs.remove(&chamber);
            self.ledger.ends(process, chamber);
            return;
        }
        let outcome = match step {
            Step::Die => {
                self.kill(process);
                self.plan(Duration::from_secs(3), Planned::Start);
                return;
            }
            Step::Store => {
                self.send_rows(process, chamber);
                return;
            }
            Step::Fail => Outcome::Failed("it fails".into()),
            Step::Broken => Outcome::Poison("it is broken".into()),
            Step::TimeOut => Outcome::Failed("it took too long".into()),
        };
        target.handler.runs.remove(&chamber);
        self.ledger.ends(process, chamber);
        self.later(Duration::ZERO, Happening::Arrival(process, Event::Processed { ticket, outcome }));
    }

    fn send_rows(&mut self, process: ProcessId, chamber: u32) {
        let now = self.now;
        if !self.processes[process.index()].lost_time {
            self.ledger.check_fence(now, process, "writes rows");
        }
        let Some(run) = self.processes[process.index()].handler.runs.remove(&chamber) else { return };
        self.ledger.ends(process, chamber);
        let ticket = run.ticket;
        let away = self.store_away_until > now;
        let outcome = match run.results {
            Some(results) if self.store_late_until > now => {
                // Its writer has given up when it lands.
                self.later(self.store_lag, Happening::Rows(Box::new(results)));
                Outcome::Unavailable
            }
            Some(results) if !away => {
                self.later(LATENCY, Happening::Rows(Box::new(results)));
                let event = Event::Processed { ticket, outcome: Outcome::Done };
                self.later(LATENCY * 2, Happening::Arrival(process, event));
                return;
            }
            Some(_) => Outcome::Unavailable,
            None => Outcome::Failed("no chart state".into()),
        };
        self.later(STORE_TIMEOUT, Happening::Arrival(process, Event::Processed { ticket, outcome }));
    }

    fn store_rows(&mut self, results: &Results) {
        self.store.write(results);
        let sum = results
            .rows
            .iter()
            .fold(0, |sum, (indicator, content)| mix(sum, content ^ u64::from(*indicator)));
        self.ledger.rows(self.now, results, &self.store, sum);
    }

    fn ask_store(&mut self, process: ProcessId, effect: Effect) {
        let now = self.now;
        let away = self.store_away_until > now;
        let (wait, event) = match effect {
            Effect::ReadOrigin { ticket, .. } if away => {
                (STORE_TIMEOUT, Event::Traced { ticket, result: Err(ReadError) })
            }
            Effect::ReadOrigin { ticket, partition } => {
                let origin = self.store.origin(self.numbers[&partition]);
                (LATENCY * 2, Event::Traced { ticket, result: Ok(origin) })
            }
            Effect::Bury { ticket, partition, work, .. } => {
                let chamber = self.numbers[&partition];
                let results = Handler::bury(chamber, &work, &self.store);
                match results {
                    Some(results) if !away => {
                        self.later(LATENCY, Happening::Rows(Box::new(results)));
                        (LATENCY * 2, Event::Done { ticket, happened: true })
                    }
                    Some(_) => (STORE_TIMEOUT, Event::Done { ticket, happened: false }),
                    None => {
                        let at = work.committed;
                        self.ledger.violate(
                            5,
                            now,
                            format!("{process} finds no chart state of {partition} at {at:?}"),
                        );
                        (STORE_TIMEOUT, Event::Done { ticket, happened: false })
                    }
                }
            }
            other => unreachable!("{other:?} is not for the store"),
        };
        self.later(wait, Happening::Arrival(process, event));
    }

    /// A request on its way to the broker: it may wait for the link, come late, or lose its answer.
    fn send(&mut self, process: ProcessId, effect: Effect) {
        let now = self.now;
        let is_heartbeat =
            matches!(&effect, Effect::Write { ticket, .. } if ticket.purpose == Purpose::Heartbeat);
        let target = &self.processes[process.index()];
        if is_heartbeat && target.mute {
            self.later(TIMEOUT, Happening::Arrival(process, unanswered(&effect)));
            return;
        }
        let cut = target.cut_out.saturating_sub(now);
        if let Some((purpose, after)) = target.repeats
            && purpose_of(&effect) == Some(purpose)
        {
            self.processes[process.index()].repeats = None;
            self.later(after, Happening::LateRequest(process, effect.clone()));
        }
        let (mut delay, mut answered) = (LATENCY, true);
        let writes = writes(&effect);
        match self.shaker.as_mut().map_or(0, |shaker| shaker.between(0, 2_000)) {
            1..=4 => {
                let late = self.shaker.as_mut().map_or(0, |shaker| shaker.between(100, 6_000));
                if self.shakes_by(if writes { Shake::LateWrite } else { Shake::LateAnswer }) {
                    delay = Duration::from_millis(late);
                }
            }
            5..=7 if self.shakes_by(Shake::LostAnswer) => answered = false,
            8..=9 if writes && self.shakes_by(Shake::DuplicatedRequest) => {
                // Sent twice, as a client does that reconnects: the second one comes later.
                self.later(cut + Duration::from_millis(700), Happening::LateRequest(process, effect.clone()));
            }
            _ => {}
        }
        let arrives = cut + delay;
        if arrives + LATENCY > TIMEOUT || !answered {
            // The caller gives up; the request may still arrive, if it is a write and the connection comes back soon.
            self.processes[process.index()].disturb(now + AFTERMATH);
            self.later(TIMEOUT, Happening::Arrival(process, unanswered(&effect)));
            if cut < Duration::from_secs(8) && writes {
                self.later(arrives, Happening::LateRequest(process, effect));
            }
            return;
        }
        self.later(arrives, Happening::Request(process, effect));
    }

    /// Whether answers are shaken in this way; it is counted then.
    fn shakes_by(&mut self, shake: Shake) -> bool {
        let happens = self.shakes.contains(&shake);
        if happens {
            *self.shaken.entry(shake.name()).or_default() += 1;
        }
        happens
    }

    fn answer(&mut self, process: ProcessId, effect: Effect) {
        let now = self.now;
        let gives_up = unanswered(&effect);
        let stale = matches!(effect, Effect::Read { .. } | Effect::ReadCursors { .. })
            && self.shaker.as_mut().is_some_and(|shaker| shaker.one_in(500))
            && self.shakes_by(Shake::StaleRead);
        let event = if stale {
            self.processes[process.index()].disturb(now + AFTERMATH);
            self.answer_stale(effect)
        } else {
            self.apply(process, effect)
        };
        let target = &mut self.processes[process.index()];
        let wait = LATENCY + target.slowness + target.cut_in.saturating_sub(now);
        if wait >= TIMEOUT {
            target.disturb(now + AFTERMATH);
            self.later(TIMEOUT - LATENCY, Happening::Arrival(process, gives_up));
        } else {
            self.later(wait, Happening::Arrival(process, event));
        }
    }

    /// An answer from a server that does not know it has lost the lead: each value is the one before.
    fn answer_stale(&mut self, effect: Effect) -> Event {
        match effect {
            Effect::Read { ticket, key } => {
                Event::Fetched { ticket, result: Ok(self.broker.before(&key).cloned()) }
            }
            Effect::ReadCursors { ticket, partitions } => {
                let keys = partitions.into_iter().map(Key::Cursor);
                let found = keys.map(|key| self.broker.before(&key).cloned()).collect();
                Event::Cursors { ticket, result: Ok(found) }
            }
            other => unreachable!("{other:?} is never answered with an old value"),
        }
    }

    /// Without the rule, claims that were not renewed for half a minute of the broker's clock are gone.
    fn expire_claims(&mut self) {
        if self.setup.config.keeps(Guard::NoShortTtl) {
            return;
        }
        let limit = self.micros() - 30_000_000;
        let old = self
            .broker
            .entries()
            .filter(|(key, entry)| matches!(key, Key::Claim(_)) && entry.stored_at < limit);
        let old: Vec<Key> = old.map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|key| self.lose(key));
    }

    /// What a request does at the broker, and the answer.
    fn apply(&mut self, process: ProcessId, effect: Effect) -> Event {
        self.expire_claims();
        let micros = self.micros();
        match effect {
            Effect::Write { ticket, key, value, condition } => {
                let result = self.write(process, ticket, &key, value, condition);
                Event::Written { ticket, result }
            }
            Effect::Delete { ticket, key, revision } => {
                let known = self.broker.get(&key).map(|entry| entry.revision);
                let revision = if revision == Revision::ANY { known.unwrap_or(revision) } else { revision };
                let result = self.broker.delete(micros, &key, revision);
                if result.is_ok() {
                    self.tell_watchers(&key);
                }
                Event::Written { ticket, result }
            }
            Effect::Read { ticket, key } => {
                Event::Fetched { ticket, result: Ok(self.broker.get(&key).cloned()) }
            }
            Effect::ReadCursors { ticket, partitions } => {
                let keys = partitions.into_iter().map(Key::Cursor);
                let found = keys.map(|key| self.broker.get(&key).cloned()).collect();
                Event::Cursors { ticket, result: Ok(found) }
            }
            Effect::SurveyLog { ticket, partitions } => {
                self.expire();
                let lasts = partitions.iter().map(|name| self.log.last_of(self.numbers[name])).collect();
                Event::Surveyed { ticket, result: Ok(Survey { info: self.log.info(), lasts }) }
            }
            Effect::ReadLog { ticket, partition, from, leader } => {
                self.expire();
                let behind = !leader
                    && self.shaker.as_mut().is_some_and(|shaker| shaker.one_in(20))
                    && self.shakes_by(Shake::StaleLog);
                let until = if behind { micros - 3_000_000 } else { u64::MAX };
                let messages = self.log.read(self.numbers[&partition], from, until);
                let info = leader.then(|| self.log.info());
                Event::Paged { ticket, result: Ok(Page { info, messages }) }
            }
            Effect::PublishDead { ticket, partition, work, .. } => {
                let chamber = self.numbers[&partition];
                if self.log.bury(chamber, work.position, decode(&work.message.payload).0) {
                    self.ledger.buried(self.now, chamber, &work);
                }
                Event::Done { ticket, happened: true }
            }
            Effect::ListSubjects { ticket } => {
                let found =
                    self.log.chambers().map(|(chamber, last)| (self.names[chamber as usize].clone(), last));
                let subjects = Subjects { stream: self.log.info().stream, lasts: found.collect() };
                Event::Subjects { ticket, result: Ok(subjects) }
            }
            other => unreachable!("{other:?} is not for the broker"),
        }
    }

    fn write(
        &mut self,
        process: ProcessId,
        ticket: Ticket,
        key: &Key,
        value: Value,
        condition: Condition,
    ) -> Result<phalanx_cluster::core::Written, WriteError> {
        let before = self.broker.get(key).map(|entry| entry.value.clone());
        let result = self.broker.write(self.micros(), key, value.clone(), condition);
        result?;
        let now = self.now;
        self.ledger.stored(now, &value);
        match (&value, before) {
            (Value::Cursor(is), before) => {
                let Key::Cursor(name) = key else { return result };
                let was = before.as_ref().and_then(|value| match value {
                    Value::Cursor(cursor) => Some(&**cursor),
                    _ => None,
                });
                self.ledger.cursor(now, process, self.numbers[name], was, is, &self.store);
                return result;
            }
            (Value::Map(is), Some(Value::Map(was))) => {
                let emergency = self.worker(process).state() == WorkerState::Emergency;
                if emergency && ticket.purpose == Purpose::PublishMap && is.version > was.version {
                    self.ledger.emergency(now, &was, is);
                }
                if is.version > was.version {
                    self.note_publication(is);
                }
            }
            (Value::Map(is), _) => self.note_publication(is),
            _ => {}
        }
        self.tell_watchers(key);
        result
    }

    fn tell_watchers(&mut self, key: &Key) {
        if matches!(key, Key::Cursor(_)) {
            return;
        }
        let now = self.now;
        let entry = self.broker.get(key).cloned();
        let bucket = Bucket::of(key);
        let mut but = Vec::new();
        for process in self.living.clone() {
            let target = &mut self.processes[process.index()];
            if target.hears_at_once(now, bucket) {
                continue;
            }
            but.push(process);
            if *key == Key::Map && std::mem::take(&mut target.drops_map) {
                continue;
            }
            let late = target.cut_in.saturating_sub(now) + target.watch_delay;
            let event = Event::Watched { key: key.clone(), entry: entry.clone(), retained: false };
            let before = target.held_back.iter().filter(|(_, of, _)| *of == bucket).map(|(at, ..)| *at).max();
            let at = before.map_or(Time::ZERO, |at| at).max(now + late + LATENCY);
            target.held_back.push((at, bucket, event));
            self.later(at - now, Happening::ShowHeldBack(process));
        }
        let until = self.processes.len() as u32;
        self.later(LATENCY, Happening::Broadcast { key: key.clone(), entry, but, until });
    }

    fn note_publication(&mut self, map: &AssignmentMap) {
        self.published.push(Publication {
            second: self.now.as_secs(),
            version: map.version.0,
            lifecycle: map.lifecycle.name(),
            workers: map.workers.len(),
            moved: map.moved,
        });
        let Version(version) = map.version;
        let workers = map.workers.len();
        self.note(|| format!("version {version} for {workers} workers"));
    }

    fn micros(&self) -> u64 {
        // The broker's clock has nothing to do with anybody else's.
        (1_700_000_000_000_000 + self.now.as_micros() as u64).saturating_add_signed(self.broker_offset)
    }

    fn later(&mut self, delay: Duration, happening: Happening) {
        self.queue.plan(self.now + delay, happening);
    }

    /// Whether every living process with an id shows this state.
    pub fn all_show(&self, state: WorkerState) -> bool {
        self.living()
            .filter(|&process| self.worker(process).holder().is_some())
            .all(|p| self.worker(p).state() == state)
    }
}

/// Whether a request changes something at the broker.
fn writes(effect: &Effect) -> bool {
    matches!(effect, Effect::Write { .. } | Effect::Delete { .. } | Effect::PublishDead { .. })
}

/// What a write or a removal is for.
fn purpose_of(effect: &Effect) -> Option<Purpose> {
    match effect {
        Effect::Write { ticket, .. } | Effect::Delete { ticket, .. } => Some(ticket.purpose),
        _ => None,
    }
}

/// What a caller is told when it gives up waiting.
fn unanswered(effect: &Effect) -> Event {
    match effect {
        Effect::Read { ticket, .. } => Event::Fetched { ticket: *ticket, result: Err(ReadError) },
        Effect::ReadCursors { ticket, .. } => Event::Cursors { ticket: *ticket, result: Err(ReadError) },
        Effect::SurveyLog { ticket, .. } => Event::Surveyed { ticket: *ticket, result: Err(ReadError) },
        Effect::ReadLog { ticket, .. } => Event::Paged { ticket: *ticket, result: Err(ReadError) },
        Effect::ListSubjects { ticket } => Event::Subjects { ticket: *ticket, result: Err(ReadError) },
        Effect::PublishDead { ticket, .. } => Event::Done { ticket: *ticket, happened: false },
        Effect::Write { ticket, .. } | Effect::Delete { ticket, .. } => {
            Event::Written { ticket: *ticket, result: Err(WriteError::Unknown) }
        }
        other => unreachable!("{other:?} is not for the broker"),
    }
}

/// FNV-1a over whole words.
fn fold(hash: u64, words: &[u64]) -> u64 {
    words.iter().fold(hash, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3))
}

/// What kind of event it was, for the trace.
fn shape(event: &Event) -> u64 {
    let answer =
        |kind: u64, ticket: &Ticket, good: bool| kind + (ticket.serial << 8) + (u64::from(good) << 7);
    match event {
        Event::Tick => 1,
        Event::Synced => 2,
        Event::Watched { entry, .. } => 3 + entry.as_ref().map_or(0, |entry| entry.revision.0 << 8),
        Event::Written { ticket, result } => answer(4, ticket, result.is_ok()),
        Event::Fetched { ticket, result } => answer(5, ticket, result.is_ok()),
        Event::Cursors { ticket, result } => answer(6, ticket, result.is_ok()),
        Event::Surveyed { ticket, result } => answer(7, ticket, result.is_ok()),
        Event::Traced { ticket, result } => answer(8, ticket, result.is_ok()),
        Event::Paged { ticket, result } => answer(9, ticket, result.is_ok()),
        Event::Processed { ticket, outcome } => answer(10, ticket, *outcome == Outcome::Done),
        Event::Done { ticket, happened } => answer(11, ticket, *happened),
        Event::Subjects { ticket, result } => answer(12, ticket, result.is_ok()),
        Event::Rung(_) => 13,
        Event::Partitions(_) => 14,
        Event::LetGo(version) => 15 + (version.0 << 8),
        Event::Drained => 16,
        Event::Shutdown => 17,
    }
}
