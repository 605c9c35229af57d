//! The world: a virtual clock, a broker, processes, and what happens between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster::core::types::{Key, Pod, Time, Value, Version};
use phalanx_cluster::core::{Config, Effect, Event, Purpose, ReadError, Worker, WorkerState, WriteError};

use crate::broker::Broker;
use crate::ledger::{Ledger, Violation};
use crate::rng::Rng;

/// One way between a process and the broker.
const LATENCY: Duration = Duration::from_millis(1);
/// An answer that has not come by then does not count any more.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a worker takes to let go of what it has lost, or to drain.
const LETTING_GO: Duration = Duration::from_millis(50);

/// How a world is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The configuration of every worker.
    pub config: Config,
    /// How many partitions there are, named `tool:0`, `tool:1`, ….
    pub partitions: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self { config: Config::default(), partitions: 300 }
    }
}

/// Names a process that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(usize);

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

#[derive(Debug)]
struct Process {
    worker: Worker,
    alive: bool,
    /// Until then it stands still.
    stopped: bool,
    /// What arrived while it stood still.
    mailbox: Vec<Event>,
    wake: Option<Time>,
    /// Until then nothing passes between it and the broker.
    cut_until: Time,
    /// How much longer its answers take.
    slowness: Duration,
    /// Its heartbeats get lost, and nothing else.
    mute: bool,
    /// How much later it is shown what it watches.
    watch_delay: Duration,
    /// Whether it was ever stopped or cut off.
    disturbed: bool,
    /// The id it held when last looked at.
    held: Option<u32>,
}

#[derive(Debug)]
enum Happening {
    /// A request reaches the broker.
    Request(ProcessId, Effect),
    /// A request reaches the broker after its caller has given up.
    LateRequest(Effect),
    /// Something reaches a process.
    Arrival(ProcessId, Event),
    /// A deadline of a process.
    Wake(ProcessId),
}

/// A simulated cluster.
#[derive(Debug)]
pub struct World {
    setup: Setup,
    now: Time,
    /// Breaks ties, so that the order is the same in every run.
    sequence: u64,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    happenings: BTreeMap<(Time, u64), Happening>,
    broker: Broker,
    processes: Vec<Process>,
    published: Vec<Publication>,
    partitions: Arc<[(Arc<str>, u64)]>,
    ledger: Ledger,
    /// Chooses lost and late answers; none in a world without them.
    shaker: Option<Rng>,
    hash: u64,
}

impl World {
    /// An empty world at second 0.
    pub fn new(setup: Setup) -> Self {
        // Weights spread over a factor of 120, as chambers have them.
        let weight = |i: usize| 30_000 * (1 + (i as u64).wrapping_mul(2_654_435_761) % 120);
        let partitions = (0..setup.partitions).map(|i| (Arc::from(format!("tool:{i}")), weight(i))).collect();
        Self {
            setup,
            now: Time::ZERO,
            sequence: 0,
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            broker: Broker::default(),
            processes: Vec::new(),
            published: Vec::new(),
            partitions,
            ledger: Ledger::default(),
            shaker: None,
            hash: 0xcbf2_9ce4_8422_2325,
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
        &self.processes[process.0].worker
    }

    /// Whether a process has not ended.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.processes[process.0].alive
    }

    /// Every process that has not ended.
    pub fn living(&self) -> impl Iterator<Item = ProcessId> {
        (0..self.processes.len()).map(ProcessId).filter(|&process| self.is_alive(process))
    }

    /// The process that leads.
    pub fn leader(&self) -> Option<ProcessId> {
        self.living().find(|&process| self.worker(process).is_leader())
    }

    /// The process that holds an id.
    pub fn holder_of(&self, id: u32) -> Option<ProcessId> {
        self.living().find(|&process| self.worker(process).holder().is_some_and(|holder| holder.id.0 == id))
    }

    /// Starts a process in a new pod.
    pub fn start(&mut self) -> ProcessId {
        let process = ProcessId(self.processes.len());
        let pod = Pod { name: format!("pod-{}", process.0).into(), uid: format!("uid-{}", process.0).into() };
        let worker = Worker::new(self.now, pod, self.setup.config.clone());
        self.processes.push(Process {
            worker,
            alive: true,
            stopped: false,
            mailbox: Vec::new(),
            wake: None,
            cut_until: Time::ZERO,
            slowness: Duration::ZERO,
            mute: false,
            watch_delay: Duration::ZERO,
            disturbed: false,
            held: None,
        });
        self.ledger.started(self.now, process);
        let retained: Vec<Event> = self
            .broker
            .entries()
            .map(|(key, entry)| Event::Watched {
                key: key.clone(),
                entry: Some(entry.clone()),
                retained: true,
            })
            .collect();
        for event in retained.into_iter().chain([Event::Partitions(self.partitions.clone()), Event::Synced]) {
            self.later(LATENCY, Happening::Arrival(process, event));
        }
        process
    }

    /// `kill -9`: what it has sent arrives, it sends and hears nothing more.
    pub fn kill(&mut self, process: ProcessId) {
        self.processes[process.0].alive = false;
    }

    /// SIGTERM: it leaves in its own order.
    pub fn terminate(&mut self, process: ProcessId) {
        self.deliver(process, Event::Shutdown);
    }

    /// SIGSTOP.
    pub fn stop(&mut self, process: ProcessId) {
        self.processes[process.0].stopped = true;
        self.processes[process.0].disturbed = true;
    }

    /// SIGCONT: everything that arrived meanwhile is handled now, after the clock has jumped.
    pub fn resume(&mut self, process: ProcessId) {
        self.processes[process.0].stopped = false;
        let mailbox = std::mem::take(&mut self.processes[process.0].mailbox);
        for event in [Event::Tick].into_iter().chain(mailbox) {
            self.deliver(process, event);
        }
    }

    /// From now on answers may be lost, and writes may land late.
    pub fn shake(&mut self, seed: u64) {
        self.shaker = Some(Rng::new(seed));
    }

    /// Nothing more is lost or late, and every link works.
    pub fn calm(&mut self) {
        self.shaker = None;
        let now = self.now;
        self.processes.iter_mut().for_each(|process| process.cut_until = process.cut_until.min(now));
    }

    /// Cuts a process off from the broker. What it asks stays unanswered; what it watches arrives afterwards.
    pub fn cut(&mut self, process: ProcessId, until: Time) {
        let target = &mut self.processes[process.0];
        target.cut_until = target.cut_until.max(until);
        target.disturbed = true;
    }

    /// Answers to a process take this much longer; after two seconds nobody waits for them.
    pub fn slow_down(&mut self, process: ProcessId, by: Duration) {
        self.processes[process.0].slowness = by;
    }

    /// The heartbeats of a process get lost, and nothing else does.
    pub fn lose_heartbeats(&mut self, process: ProcessId) {
        self.processes[process.0].mute = true;
        self.processes[process.0].disturbed = true;
    }

    /// A process is shown what it watches that much later; its requests are answered as ever.
    pub fn delay_watch(&mut self, process: ProcessId, by: Duration) {
        self.processes[process.0].watch_delay = by;
        self.processes[process.0].disturbed = true;
    }

    /// A value is gone, as if it had expired or its bucket were lost.
    pub fn lose(&mut self, key: &Key) {
        if let Some(revision) = self.broker.get(key).map(|entry| entry.revision) {
            let deleted = self.broker.delete(self.micros(), key, revision);
            debug_assert!(deleted.is_ok(), "that revision was there");
            self.tell_watchers(key);
        }
    }

    /// The broker is away for everybody.
    pub fn cut_all(&mut self, until: Time) {
        (0..self.processes.len()).for_each(|process| self.cut(ProcessId(process), until));
    }

    /// Promises broken so far.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.ledger.violations)
    }

    /// A hash over everything that happened.
    pub fn trace_hash(&self) -> u64 {
        self.hash
    }

    /// A person's command, such as the fleet size.
    pub fn command(&mut self, key: &Key, value: Value) {
        let stored = self.broker.write(self.micros(), key, value, phalanx_cluster::core::Condition::None);
        debug_assert!(stored.is_ok(), "a command without a condition");
        self.tell_watchers(key);
    }

    /// Lets time pass up to that second.
    pub fn run_until(&mut self, end: Time) {
        while let Some(&Reverse(at)) = self.queue.peek() {
            if at.0 > end {
                break;
            }
            self.queue.pop();
            self.now = self.now.max(at.0);
            if let Some(happening) = self.happenings.remove(&at) {
                self.happen(happening);
            }
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Request(process, effect) => self.answer(process, effect),
            Happening::LateRequest(effect) => {
                self.apply(effect);
            }
            Happening::Arrival(process, event) => self.deliver(process, event),
            Happening::Wake(process) => {
                if self.processes[process.0].wake == Some(self.now) {
                    self.processes[process.0].wake = None;
                    self.deliver(process, Event::Tick);
                }
            }
        }
    }

    fn deliver(&mut self, process: ProcessId, event: Event) {
        let now = self.now;
        let target = &mut self.processes[process.0];
        if !target.alive {
            return;
        }
        if target.stopped {
            target.mailbox.push(event);
            return;
        }
        if let Event::Written { ticket, result: Ok(_) } = &event {
            self.ledger.acknowledged(process, *ticket);
        }
        self.hash = fold(self.hash, &[now.as_micros() as u64, process.0 as u64, shape(&event)]);
        let mut effects = Vec::new();
        target.worker.handle(now, event, &mut effects);
        for effect in effects {
            self.ledger.asked(now, process, &effect);
            self.carry_out(process, effect);
        }
        self.check_identity(process);
        self.set_alarm(process);
    }

    /// Two unfenced holders of one id, or an id lost without cause.
    fn check_identity(&mut self, process: ProcessId) {
        let now = self.now;
        let target = &self.processes[process.0];
        let holds = target.worker.holder().map(|holder| holder.id.0);
        let leaving = target.worker.state() == WorkerState::Shutdown;
        if let Some(lost) = target.held.filter(|was| holds != Some(*was) && !target.disturbed && !leaving) {
            self.ledger.violate(
                11,
                now,
                format!("{process} lost defender-{lost} although nothing befell it"),
            );
        }
        if let Some(id) = holds.filter(|_| !self.processes[process.0].worker.is_fenced(now)) {
            let other = (0..self.processes.len()).map(ProcessId).find(|&other| {
                let candidate = &self.processes[other.0];
                other != process
                    && candidate.alive
                    && candidate.worker.holder().is_some_and(|holder| holder.id.0 == id)
                    && !candidate.worker.is_fenced(now)
            });
            if let Some(other) = other {
                self.ledger.violate(10, now, format!("{process} and {other} both hold defender-{id}"));
            }
        }
        self.processes[process.0].held = holds;
    }

    fn set_alarm(&mut self, process: ProcessId) {
        let now = self.now;
        let target = &mut self.processes[process.0];
        let due = target.worker.next_deadline(now).filter(|_| target.alive);
        if due != target.wake {
            target.wake = due;
            if let Some(due) = due {
                self.later(due.saturating_sub(now), Happening::Wake(process));
            }
        }
    }

    fn carry_out(&mut self, process: ProcessId, effect: Effect) {
        match effect {
            Effect::Write { .. } | Effect::Delete { .. } | Effect::Read { .. } => self.send(process, effect),
            Effect::Assign { version, removed, .. } => {
                if !removed.is_empty() {
                    self.later(LETTING_GO, Happening::Arrival(process, Event::LetGo(version)));
                }
            }
            Effect::Drain => self.later(LETTING_GO, Happening::Arrival(process, Event::Drained)),
            Effect::Exit => self.processes[process.0].alive = false,
            Effect::Fence | Effect::Unfence | Effect::Warn(_) => {}
        }
    }

    /// A request on its way to the broker: it may wait for the link, come late, or lose its answer.
    fn send(&mut self, process: ProcessId, effect: Effect) {
        let is_heartbeat =
            matches!(&effect, Effect::Write { ticket, .. } if ticket.purpose == Purpose::Heartbeat);
        if is_heartbeat && self.processes[process.0].mute {
            self.later(TIMEOUT, Happening::Arrival(process, unanswered(&effect)));
            return;
        }
        let cut = self.processes[process.0].cut_until.saturating_sub(self.now);
        let fate = self.shaker.as_mut().map_or(0, |shaker| shaker.between(0, 400));
        let delay = match fate {
            1 => Duration::from_millis(self.shaker.as_mut().map_or(0, |shaker| shaker.between(100, 6_000))),
            _ => LATENCY,
        };
        let arrives = cut + delay;
        if arrives + LATENCY > TIMEOUT || fate == 2 {
            // The caller gives up; the request may still arrive, if it is a write and the connection comes back soon.
            self.later(TIMEOUT, Happening::Arrival(process, unanswered(&effect)));
            if cut < Duration::from_secs(8) && !matches!(effect, Effect::Read { .. }) {
                self.later(arrives, Happening::LateRequest(effect));
            }
            return;
        }
        self.later(arrives, Happening::Request(process, effect));
    }

    fn answer(&mut self, process: ProcessId, effect: Effect) {
        let event = self.apply(effect);
        let slowness = self.processes[process.0].slowness;
        self.later(LATENCY + slowness, Happening::Arrival(process, event));
    }

    /// What a request does at the broker, and the answer.
    fn apply(&mut self, effect: Effect) -> Event {
        let micros = self.micros();
        match effect {
            Effect::Write { ticket, key, value, condition } => {
                let before = self.map_version();
                let result = self.broker.write(micros, &key, value.clone(), condition);
                if result.is_ok() {
                    self.ledger.stored(self.now, &value);
                    if self.map_version() > before {
                        self.note_publication();
                    }
                    self.tell_watchers(&key);
                }
                Event::Written { ticket, result }
            }
            Effect::Delete { ticket, key, revision } => {
                let result = self.broker.delete(micros, &key, revision);
                if result.is_ok() {
                    self.tell_watchers(&key);
                }
                Event::Written { ticket, result }
            }
            Effect::Read { ticket, key } => {
                Event::Fetched { ticket, result: Ok(self.broker.get(&key).cloned()) }
            }
            other => unreachable!("{other:?} is not for the broker"),
        }
    }

    fn tell_watchers(&mut self, key: &Key) {
        let entry = self.broker.get(key).cloned();
        for process in self.living().collect::<Vec<_>>() {
            let event = Event::Watched { key: key.clone(), entry: entry.clone(), retained: false };
            let target = &self.processes[process.0];
            let late = target.cut_until.saturating_sub(self.now) + target.watch_delay;
            self.later(late + LATENCY, Happening::Arrival(process, event));
        }
    }

    fn map_version(&self) -> Option<Version> {
        match &self.broker.get(&Key::Map)?.value {
            Value::Map(map) => Some(map.version),
            _ => None,
        }
    }

    fn note_publication(&mut self) {
        let Some(Value::Map(map)) = self.broker.get(&Key::Map).map(|entry| &entry.value) else { return };
        self.published.push(Publication {
            second: self.now.as_secs(),
            version: map.version.0,
            lifecycle: map.lifecycle.name(),
            workers: map.workers.len(),
            moved: map.moved,
        });
    }

    fn micros(&self) -> u64 {
        // The broker's clock has nothing to do with anybody else's.
        1_700_000_000_000_000 + self.now.as_micros() as u64
    }

    fn later(&mut self, delay: Duration, happening: Happening) {
        self.sequence += 1;
        let at = (self.now + delay, self.sequence);
        self.queue.push(Reverse(at));
        self.happenings.insert(at, happening);
    }

    /// Whether every living process with an id shows this state.
    pub fn all_show(&self, state: WorkerState) -> bool {
        self.living()
            .filter(|&process| self.worker(process).holder().is_some())
            .all(|p| self.worker(p).state() == state)
    }
}

/// What a caller is told when it gives up waiting.
fn unanswered(effect: &Effect) -> Event {
    match effect {
        Effect::Read { ticket, .. } => Event::Fetched { ticket: *ticket, result: Err(ReadError) },
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
    match event {
        Event::Tick => 1,
        Event::Synced => 2,
        Event::Watched { entry, .. } => 3 + entry.as_ref().map_or(0, |entry| entry.revision.0 << 8),
        Event::Written { ticket, result } => 4 + (ticket.serial << 8) + u64::from(result.is_ok()),
        Event::Fetched { ticket, result } => 6 + (ticket.serial << 8) + u64::from(result.is_ok()),
        Event::Partitions(_) => 8,
        Event::LetGo(version) => 9 + (version.0 << 8),
        Event::Drained => 10,
        Event::Shutdown => 11,
    }
}
