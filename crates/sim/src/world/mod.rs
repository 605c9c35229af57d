//! The world: a virtual clock, a broker, a log, a store, processes, and what happens between them.

mod looking;
mod traffic;
mod trouble;
mod wire;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster_core::types::{AssignmentMap, Entry, Key, Pod, Revision, Time, Value, Version, WorkerId};
use phalanx_cluster_core::{
    Condition, Config, Effect, Event, Guard, Notice, Outcome, Page, Purpose, ReadError, Subjects, Survey,
    Tenure, Ticket, Worker, WorkerState, WriteError,
};

use crate::HashMap;
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
    /// A term after a lease was granted or renewed.
    TermOver(Revision),
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
    /// Until then whoever grants leases answers nobody; every lease gets a full term from then on.
    grantor_away_until: Time,
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
    /// Requests of processes below this number are lost: they ended before the folder was opened again.
    first_of_folder: u32,
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
            grantor_away_until: Time::ZERO,
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
            first_of_folder: 0,
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
            self.later(LATENCY, Happening::Arrival(process, event));
        }
    }

    fn end(&mut self, process: ProcessId) {
        let target = &mut self.processes[process.index()];
        target.alive = false;
        target.mailbox.clear();
        target.handler.drop_all();
        self.living.retain(|&living| living != process);
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
            Happening::Request(process, _) | Happening::LateRequest(process, _)
                if process.0 < self.first_of_folder => {}
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
            Happening::TermOver(revision) => self.term_over(revision),
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
        if let Event::Written { ticket, result } = &event {
            if result.is_ok() {
                self.ledger.acknowledged(process, *ticket);
            }
            self.ledger.cursor_answered(process, *ticket, *result);
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
        self.carry_out_all(process, effects);
    }

    /// Whatever a process wants done, in its order, for as long as it lives. Apart from `deliver`, because most events
    /// want nothing.
    #[inline(never)]
    fn carry_out_all(&mut self, process: ProcessId, effects: Vec<Effect>) {
        let now = self.now;
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
            self.note_cursor_write(process, &effect);
            if let Some(trace) = &mut self.trace {
                trace.push(format!("{:>12.6} {process} -> {effect:?}", now.as_secs_f64()));
            }
            self.carry_out(process, effect);
        }
        self.check_identity(process);
        self.set_alarm(process);
    }

    /// Tells the ledger which cursor a process is about to write, and when it releases its id by itself.
    fn note_cursor_write(&mut self, process: ProcessId, effect: &Effect) {
        match effect {
            Effect::Write { ticket, key: Key::Cursor(name), .. } => {
                self.ledger.cursor_asked(process, *ticket, self.numbers[name]);
            }
            Effect::Delete { ticket, .. } if ticket.purpose == Purpose::Release => {
                if let Some(holder) = self.processes[process.index()].holder {
                    self.ledger.left(process, holder);
                }
            }
            _ => {}
        }
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
        let holder = target.worker.holder();
        let holds = holder.map(|holder| holder.id.0);
        self.processes[process.index()].holder = holder.or(target.holder);
        let target = &self.processes[process.index()];
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
        // The id is compared first: whose fence is open is known by a clock of its own each.
        let held = |process: ProcessId| {
            let target = &self.processes[process.index()];
            target.worker.holder().map(|holder| holder.id).filter(|_| !target.lost_time)
        };
        let unfenced = |process: ProcessId| {
            let target = &self.processes[process.index()];
            !target.worker.is_fenced(target.clock(now))
        };
        let Some(id) = held(process).filter(|_| unfenced(process)) else { return };
        let other =
            self.living().find(|&other| other != process && held(other) == Some(id) && unfenced(other));
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
                self.ledger.doubt(process, chamber);
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
                self.ledger.fenced(process);
            }
            Effect::Unfence => self.ledger.unfenced(process),
            Effect::Notice(notice) => self.notice(process, &notice),
            Effect::Grant { .. } | Effect::Warn(_) => {}
        }
    }

    fn micros(&self) -> u64 {
        // The broker's clock has nothing to do with anybody else's.
        (1_700_000_000_000_000 + self.now.as_micros() as u64).saturating_add_signed(self.broker_offset)
    }

    fn later(&mut self, delay: Duration, happening: Happening) {
        self.queue.plan(self.now + delay, happening);
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
