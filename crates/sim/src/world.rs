//! The world: a virtual clock, a broker, processes, and what happens between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster::core::types::{Key, Pod, Time, Value, Version};
use phalanx_cluster::core::{Config, Effect, Event, Worker, WorkerState};

use crate::broker::Broker;

/// One way between a process and the broker.
const LATENCY: Duration = Duration::from_millis(1);
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
}

#[derive(Debug)]
enum Happening {
    /// A request reaches the broker.
    Request(ProcessId, Effect),
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
        self.processes.push(Process { worker, alive: true, stopped: false, mailbox: Vec::new(), wake: None });
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
    }

    /// SIGCONT: everything that arrived meanwhile is handled now, after the clock has jumped.
    pub fn resume(&mut self, process: ProcessId) {
        self.processes[process.0].stopped = false;
        let mailbox = std::mem::take(&mut self.processes[process.0].mailbox);
        for event in [Event::Tick].into_iter().chain(mailbox) {
            self.deliver(process, event);
        }
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
        let mut effects = Vec::new();
        target.worker.handle(now, event, &mut effects);
        for effect in effects {
            self.carry_out(process, effect);
        }
        self.set_alarm(process);
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
            Effect::Write { .. } | Effect::Delete { .. } | Effect::Read { .. } => {
                self.later(LATENCY, Happening::Request(process, effect));
            }
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

    fn answer(&mut self, process: ProcessId, effect: Effect) {
        let micros = self.micros();
        let (event, changed) = match effect {
            Effect::Write { ticket, key, value, condition } => {
                let before = self.map_version();
                let result = self.broker.write(micros, &key, value, condition);
                if result.is_ok() && self.map_version() > before {
                    self.note_publication();
                }
                (Event::Written { ticket, result }, result.is_ok().then_some(key))
            }
            Effect::Delete { ticket, key, revision } => {
                let result = self.broker.delete(micros, &key, revision);
                (Event::Written { ticket, result }, result.is_ok().then_some(key))
            }
            Effect::Read { ticket, key } => {
                (Event::Fetched { ticket, result: Ok(self.broker.get(&key).cloned()) }, None)
            }
            other => unreachable!("{other:?} is not for the broker"),
        };
        self.later(LATENCY, Happening::Arrival(process, event));
        if let Some(key) = changed {
            self.tell_watchers(&key);
        }
    }

    fn tell_watchers(&mut self, key: &Key) {
        let entry = self.broker.get(key).cloned();
        for process in self.living().collect::<Vec<_>>() {
            let event = Event::Watched { key: key.clone(), entry: entry.clone(), retained: false };
            self.later(LATENCY, Happening::Arrival(process, event));
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
