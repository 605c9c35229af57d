//! One event loop: events in, the core decides, effects out. Nothing here waits for anything but the next event.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::broker::{Broker, TIMEOUT};
use super::clock;
use super::doorbells::{DoorbellConfig, Doorbells};
use super::gate::Gate;
use super::handle::{Command, Role, Status};
use super::handler::{self, Delivery, Handler};
use super::hooks::{Call, Owned, Queue};
use super::metrics::Metrics;
use super::partitions::{self, PartitionSource};
use super::problem::Problem;
use super::watching::{Signal, WATCHED, Watching};
use crate::codec::Bucket;
use crate::core::types::{Key, Partitions, Pod, Time, Value, Version, WorkerId};
use crate::core::{
    Config, Effect, Event, Notice, Outcome, Purpose, ReadError, Ticket, Warning, Work, Worker, WorkerState,
};

/// So many events are handled before the clock is looked at again.
const AT_ONCE: usize = 256;
/// What leaving may take beyond the drain: each of its writes may run into its time-out.
const LEAVING: Duration = Duration::from_secs(20);

/// Everything of a worker that outlives its beginnings anew.
pub(super) struct Shell {
    pub(super) broker: Arc<Broker>,
    pub(super) config: Config,
    pub(super) pod: Pod,
    pub(super) partitions: Arc<Partitions>,
    pub(super) source: Arc<dyn PartitionSource>,
    pub(super) handler: Option<Arc<dyn Handler>>,
    pub(super) hooks: Queue,
    pub(super) metrics: Metrics,
    pub(super) doorbells: DoorbellConfig,
    /// When the event loop last went round, in milliseconds.
    pub(super) turned: Arc<AtomicU64>,
    pub(super) gate: Gate,
    pub(super) status: watch::Sender<Status>,
}

/// Why a life of the core ended.
enum End {
    /// Everything is done.
    Exit,
    /// A bucket was made anew: what the core knows is not true any more.
    Replaced(Bucket),
}

impl Shell {
    /// Runs until it is told to leave and has left.
    pub(super) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Command>) {
        while let End::Replaced(bucket) = Life::begin(&mut self).run(&mut orders).await {
            self.gate.set(None);
            self.hooks.report(Problem::BucketReplaced(bucket_name(bucket)));
            // Whoever makes a bucket anew may not be through with it.
            tokio::time::sleep(TIMEOUT / 4).await;
        }
        self.gate.set(None);
        // Whoever waits for the end has been told everything before.
        self.hooks.flushed().await;
        self.status.send_modify(|status| status.ended = true);
    }
}

fn bucket_name(bucket: Bucket) -> &'static str {
    match bucket {
        Bucket::StableIds => "stable ids",
        Bucket::Heartbeats => "heartbeats",
        Bucket::Assignments => "assignments",
        Bucket::Election => "the election",
        Bucket::Cursors => "cursors",
    }
}

/// The core from its start to its end, and all that runs for it. Dropping it ends all of that.
struct Life<'a> {
    shell: &'a mut Shell,
    core: Worker,
    signals: mpsc::UnboundedSender<Signal>,
    inbox: mpsc::UnboundedReceiver<Signal>,
    /// Requests, watches and handlers.
    tasks: JoinSet<()>,
    /// What processes a message of a partition.
    running: HashMap<Arc<str>, AbortHandle>,
    bells: Doorbells,
    /// The watches that have told what was there.
    current: BTreeSet<Bucket>,
    owned: BTreeSet<Arc<str>>,
    /// Taken, and not told yet.
    granted: Vec<Owned>,
    /// When each worker was last heard.
    heard: BTreeMap<WorkerId, Time>,
    began: Time,
    leading_since: Option<Time>,
    leave_until: Option<Time>,
    transitions: usize,
    since: Time,
}

impl<'a> Life<'a> {
    fn begin(shell: &'a mut Shell) -> Self {
        let now = clock::now();
        let (signals, inbox) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let newest_map = Arc::new(AtomicU64::new(0));
        for bucket in WATCHED {
            let (broker, signals, newest_map) = (shell.broker.clone(), signals.clone(), newest_map.clone());
            tasks.spawn(Watching { broker, bucket, signals, newest_map }.run());
        }
        let bells =
            Doorbells::new(shell.broker.clone(), shell.doorbells, shell.metrics.clone(), signals.clone());
        Self {
            core: Worker::new(now, shell.pod.clone(), shell.config.clone()),
            shell,
            signals,
            inbox,
            tasks,
            running: HashMap::new(),
            bells,
            current: BTreeSet::new(),
            owned: BTreeSet::new(),
            granted: Vec::new(),
            heard: BTreeMap::new(),
            began: now,
            leading_since: None,
            leave_until: None,
            transitions: 0,
            since: now,
        }
    }

    /// The event loop.
    async fn run(mut self, orders: &mut mpsc::UnboundedReceiver<Command>) -> End {
        let mut end = self.handle(Event::Partitions(self.shell.partitions.clone()));
        while end.is_none() {
            let now = u64::try_from(clock::now().as_millis()).unwrap_or(u64::MAX);
            self.shell.turned.store(now, Ordering::Relaxed);
            let due = [self.core.next_deadline(), self.leave_until].into_iter().flatten().min();
            let wait = due.map_or(Duration::from_secs(3600), |due| due.saturating_sub(clock::now()));
            tokio::select! {
                biased;
                Some(signal) = self.inbox.recv() => {
                    end = self.signalled(signal);
                    for _ in 0..AT_ONCE {
                        let Ok(signal) = self.inbox.try_recv() else { break };
                        if end.is_some() { break }
                        end = self.signalled(signal);
                    }
                }
                Some(order) = orders.recv() => end = self.ordered(order),
                Some(_) = self.tasks.join_next() => {}
                () = tokio::time::sleep(wait) => end = self.handle(Event::Tick),
            }
            self.grant();
            if self.leave_until.is_some_and(|until| clock::now() >= until) {
                end = Some(End::Exit);
            }
        }
        self.let_go_of_everything(None);
        end.unwrap_or(End::Exit)
    }

    fn signalled(&mut self, signal: Signal) -> Option<End> {
        match signal {
            Signal::Event(event) => {
                self.note_heard(&event);
                self.handle(event)
            }
            Signal::Current(bucket) => {
                let is_new = self.current.insert(bucket);
                if is_new && self.current.len() == WATCHED.len() {
                    let took = clock::now() - self.began;
                    self.shell.metrics.all.initialization.observe(took.as_secs_f64());
                    return self.handle(Event::Synced);
                }
                None
            }
            // Bells were silent meanwhile: everything is looked at.
            Signal::Resumed => {
                let owned: Vec<_> = self.owned.iter().cloned().collect();
                owned.into_iter().find_map(|partition| self.handle(Event::Rung(partition)))
            }
            Signal::Replaced(bucket) => Some(End::Replaced(bucket)),
        }
    }

    fn ordered(&mut self, order: Command) -> Option<End> {
        match order {
            Command::Shutdown => {
                self.shell.metrics.all.inflight_at_shutdown.set(self.running.len() as i64);
                let until = clock::now() + self.shell.config.drain_timeout + LEAVING;
                self.leave_until.get_or_insert(until);
                self.handle(Event::Shutdown)
            }
            Command::Refresh(answer) => {
                let (source, signals, hooks) =
                    (self.shell.source.clone(), self.signals.clone(), self.shell.hooks.clone());
                self.tasks.spawn(async move {
                    let loaded = partitions::load(&*source).await;
                    match &loaded {
                        Ok(loaded) => drop(signals.send(Signal::Event(Event::Partitions(loaded.clone())))),
                        Err(error) => hooks.report(Problem::Partitions(error.to_string())),
                    }
                    let _ = answer.send(loaded.map(|partitions| partitions.len()));
                });
                None
            }
        }
    }

    /// Gives the core one event, and carries out what it decides.
    fn handle(&mut self, event: Event) -> Option<End> {
        if let Event::Partitions(partitions) = &event {
            self.shell.partitions = partitions.clone();
        }
        let mut effects = Vec::new();
        let now = clock::now();
        self.core.handle(now, event, &mut effects);
        let took = clock::now() - now;
        // Before anything else: what runs must know how long it may.
        self.shell.gate.set(self.core.holder().and_then(|_| self.core.unfenced_until()));
        let mut end = None;
        for effect in effects {
            end = end.or(self.carry_out(effect, took));
        }
        self.show();
        end
    }

    fn carry_out(&mut self, effect: Effect, took: Duration) -> Option<End> {
        let broker = self.shell.broker.clone();
        match effect {
            Effect::Write { ticket, key, value, condition } => {
                self.count_write(ticket.purpose, &value, took);
                if ticket.purpose == Purpose::Farewell {
                    self.bells.close_all();
                }
                let metrics = self.shell.metrics.clone();
                self.request(async move {
                    let event = broker.write(ticket, key, value, condition, took).await;
                    if let Event::Written { result, .. } = &event {
                        match ticket.purpose {
                            Purpose::Heartbeat if result.is_err() => metrics.all.heartbeat_errors.inc(),
                            Purpose::PublishMap if result.is_ok() => {
                                tokio::spawn(async move { broker.tidy_parts().await });
                            }
                            _ => {}
                        }
                    }
                    event
                });
            }
            Effect::Delete { ticket, key, revision } => {
                self.request(async move { broker.delete(ticket, key, revision).await });
            }
            Effect::Read { ticket, key } => self.request(async move { broker.read(ticket, key).await }),
            Effect::ReadCursors { ticket, partitions } => {
                self.request(async move { broker.read_cursors(ticket, partitions).await });
            }
            Effect::SurveyLog { ticket, partitions } => {
                let handler = self.shell.handler.clone()?;
                self.request(async move { broker.survey(ticket, partitions, &*handler).await });
            }
            Effect::ListSubjects { ticket } => {
                let listed = self.shell.partitions.clone();
                self.request(async move { broker.list_subjects(ticket, &listed).await });
            }
            Effect::ReadLog { ticket, partition, from, leader } => {
                let handler = self.shell.handler.clone()?;
                self.request(async move { broker.page(ticket, partition, from, leader, &*handler).await });
            }
            Effect::PublishDead { ticket, partition, work, reason } => {
                let dead = Problem::DeadLetter {
                    partition: partition.clone(),
                    sequence: work.message.sequence,
                    reason: reason.clone(),
                };
                self.shell.hooks.report(dead);
                self.request(async move { broker.publish_dead(ticket, partition, work, reason).await });
            }
            Effect::ReadOrigin { ticket, partition } => {
                let handler = self.shell.handler.clone()?;
                self.request(async move {
                    let result = handler::asked(TIMEOUT, handler.origin(&partition)).await;
                    Event::Traced { ticket, result: result.map_err(|_| ReadError) }
                });
            }
            Effect::Bury { ticket, partition, work, reason } => {
                let handler = self.shell.handler.clone()?;
                let delivery = Delivery::new(partition, &work, self.shell.gate.clone());
                self.request(async move {
                    let buried = handler::asked(TIMEOUT, handler.bury(delivery, &reason)).await;
                    Event::Done { ticket, happened: buried.is_ok() }
                });
            }
            Effect::Process { ticket, partition, work } => {
                let handler = self.shell.handler.clone()?;
                self.process(handler, ticket, partition, &work);
            }
            Effect::Cancel { partition } => self.cancel(&partition),
            Effect::Fence => self.cancel_all(),
            Effect::Unfence => {}
            Effect::Assign { version, added, removed } => self.assign(version, added, removed),
            Effect::Grant { partition, take } => self.granted.push(Owned { partition, take: Some(take) }),
            Effect::Drain => self.let_go_of_everything(Some(self.tell(Event::Drained))),
            Effect::Notice(notice) => self.notice(notice, took),
            Effect::Warn(warning) => self.shell.hooks.report(match warning {
                Warning::PoolExhausted { ids } => Problem::PoolExhausted { ids },
                Warning::IdentityLost { id } => Problem::IdentityLost { id },
                Warning::IdleStandby => Problem::IdleStandby,
            }),
            Effect::Exit => {
                if let Some(until) = self.leave_until {
                    let began = until.saturating_sub(self.shell.config.drain_timeout + LEAVING);
                    let took = clock::now().saturating_sub(began);
                    self.shell.metrics.all.shutdown_duration.observe(took.as_secs_f64());
                }
                return Some(End::Exit);
            }
        }
        None
    }

    /// Carries out a request whose answer comes back as an event.
    fn request(&mut self, request: impl Future<Output = Event> + Send + 'static) {
        let signals = self.signals.clone();
        self.tasks.spawn(async move {
            let _ = signals.send(Signal::Event(request.await));
        });
    }

    fn process(&mut self, handler: Arc<dyn Handler>, ticket: Ticket, partition: Arc<str>, work: &Work) {
        self.cancel(&partition);
        let delivery = Delivery::new(partition.clone(), work, self.shell.gate.clone());
        let (signals, metrics) = (self.signals.clone(), self.shell.metrics.clone());
        let limit = self.shell.config.process_timeout;
        let task = self.tasks.spawn(async move {
            metrics.all.received.inc();
            let timer = metrics.all.process_time.start_timer();
            let outcome = handler::process(&*handler, delivery, limit).await;
            timer.observe_duration();
            if matches!(outcome, Outcome::Failed(_) | Outcome::Poison(_)) {
                metrics.all.failed.inc();
            }
            let _ = signals.send(Signal::Event(Event::Processed { ticket, outcome }));
        });
        self.running.insert(partition, task);
    }

    fn cancel(&mut self, partition: &Arc<str>) {
        if let Some(task) = self.running.remove(partition) {
            task.abort();
        }
    }

    fn cancel_all(&mut self) {
        self.running.drain().for_each(|(_, task)| task.abort());
    }

    /// A map gives and takes. With a log the partitions themselves see to a clean hand-over; without one, the hook does.
    fn assign(&mut self, version: Version, added: Vec<Arc<str>>, removed: Vec<Arc<str>>) {
        for partition in &removed {
            self.bells.close(partition);
            self.owned.remove(partition);
        }
        for partition in &added {
            self.bells.open(partition);
            self.owned.insert(partition.clone());
        }
        let assignment = Arc::new(self.owned.clone());
        self.shell.status.send_modify(|status| status.assignment = assignment);
        self.shell.metrics.all.assigned.set(self.owned.len() as i64);
        self.granted.retain(|granted| !removed.contains(&granted.partition));
        let with_log = self.shell.config.log;
        if !with_log && removed.is_empty() {
            return;
        }
        let told = |partition| Owned { partition, take: None };
        let added = if with_log { added.into_iter().map(told).collect() } else { Vec::new() };
        let done = (!removed.is_empty()).then(|| self.tell(Event::LetGo(version)));
        self.shell.hooks.call(Call::Assignment { added, removed, done });
    }

    /// Tells what was taken since the last turn, all at once.
    fn grant(&mut self) {
        if !self.granted.is_empty() {
            let added = std::mem::take(&mut self.granted);
            self.shell.hooks.call(Call::Assignment { added, removed: Vec::new(), done: None });
        }
    }

    /// Everything owned is told to be removed; then, or after the patience that hooks get, `done`.
    fn let_go_of_everything(&mut self, done: Option<Box<dyn FnOnce() + Send>>) {
        self.granted.clear();
        let removed: Vec<_> = std::mem::take(&mut self.owned).into_iter().collect();
        self.shell.status.send_modify(|status| status.assignment = Arc::default());
        if !removed.is_empty() || done.is_some() {
            self.shell.hooks.call(Call::Assignment { added: Vec::new(), removed, done });
        }
    }

    /// Tells the core something later, from wherever it happens.
    fn tell(&self, event: Event) -> Box<dyn FnOnce() + Send> {
        let signals = self.signals.clone();
        Box::new(move || drop(signals.send(Signal::Event(event))))
    }

    fn notice(&mut self, notice: Notice, took: Duration) {
        let all = &self.shell.metrics.all;
        let problem = match notice {
            Notice::Committed { partition, position, dead } => {
                if dead { &all.dead_letters } else { &all.processed }.inc();
                if let Some(handler) = &self.shell.handler {
                    handler::tell_committed(&**handler, &partition, position);
                }
                return;
            }
            Notice::Expired { partition, after, before } => {
                all.expired.inc_by(before.saturating_sub(after + 1));
                Problem::Expired { partition, after, before }
            }
            Notice::LogReplaced { partition, generation } => {
                all.replaced.inc();
                Problem::LogReplaced { partition, generation }
            }
            Notice::Adopted { partition } => {
                all.adopted.inc();
                Problem::Adopted { partition }
            }
            Notice::RestartDetected => {
                all.restarts.inc();
                return;
            }
            Notice::Planned(planned) => {
                self.shell.metrics.planned(&planned, took);
                return;
            }
        };
        self.shell.hooks.report(problem);
    }

    fn count_write(&mut self, purpose: Purpose, value: &Value, took: Duration) {
        let metrics = &self.shell.metrics;
        match (purpose, value) {
            (Purpose::Claim, _) => metrics.all.claim_attempts.inc(),
            (Purpose::Lease, _) if !self.core.is_leader() => metrics.all.elections.inc(),
            (Purpose::PublishMap, Value::Map(map)) => {
                metrics.published(map, took);
            }
            _ => {}
        }
    }

    fn note_heard(&mut self, event: &Event) {
        if let Event::Watched { key: Key::Heartbeat(id), entry: Some(entry), retained: false } = event
            && let Value::Heartbeat(beat) = &entry.value
        {
            if beat.left {
                self.heard.remove(id);
            } else {
                self.heard.insert(*id, clock::now());
            }
        }
    }

    /// Shows what the core is doing, where that has changed.
    fn show(&mut self) {
        let now = clock::now();
        self.show_transitions();
        let (core, metrics) = (&self.core, &self.shell.metrics);
        // A standby that reaches for a freed id is one until it has it: whoever asks whether it is ready sees no gap.
        let stood_by = self.shell.status.borrow().role == Role::Standby;
        let stands_by = core.is_standby() || stood_by && core.state() == WorkerState::ClaimingId;
        let role = match (core.holder(), core.is_leader(), stands_by) {
            (Some(_), true, _) => Role::Leader,
            (Some(_), false, _) => Role::Follower,
            (None, _, true) => Role::Standby,
            (None, _, false) => Role::Candidate,
        };
        let map_version = core.map().map_or(Version(0), |map| map.version);
        let (state, holder, applied) = (core.state(), core.holder(), core.applied_version());
        let is_open = core.holder().is_some() && core.unfenced_until().is_some();
        let before = self.shell.status.borrow().holder;
        self.shell.status.send_if_modified(|status| {
            let is_same = status.state == state
                && status.role == role
                && status.holder == holder
                && status.is_open == is_open
                && status.map_version == map_version
                && status.applied_version == applied;
            (status.state, status.role, status.holder) = (state, role, holder);
            (status.is_open, status.map_version, status.applied_version) = (is_open, map_version, applied);
            if !is_same {
                status.map = core.map().cloned();
            }
            !is_same
        });
        metrics.all.map_version.set(map_version.0 as i64);
        metrics.all.assignment_version.set(applied.0 as i64);
        metrics.all.pending.set(core.pending_changes() as i64);
        if before != holder {
            self.show_id(before.map(|holder| holder.id), now);
        }
        self.show_leadership(role == Role::Leader, now);
    }

    fn show_id(&self, before: Option<WorkerId>, now: Time) {
        let all = &self.shell.metrics.all;
        if let Some(before) = before {
            all.stable_id_claimed.with_label_values(&[&before.to_string()]).set(0);
            all.is_leader.with_label_values(&[&before.to_string()]).set(0);
        }
        match self.core.holder() {
            Some(holder) => {
                all.stable_id.set(i64::from(holder.id.0));
                all.stable_id_claimed.with_label_values(&[&holder.id.to_string()]).set(1);
                all.claim_duration.observe((now - self.began).as_secs_f64());
            }
            None => all.stable_id.set(-1),
        }
    }

    fn show_leadership(&mut self, leads: bool, now: Time) {
        let all = &self.shell.metrics.all;
        if let (true, Some(holder)) = (leads != self.leading_since.is_some(), self.core.holder()) {
            all.is_leader.with_label_values(&[&holder.id.to_string()]).set(i64::from(leads));
        }
        match (leads, self.leading_since) {
            (true, None) => {
                all.controller_started.inc();
                self.leading_since = Some(now);
            }
            (false, Some(since)) => {
                self.shell.metrics.leads_no_more(now - since);
                self.leading_since = None;
            }
            (true, Some(_)) => {
                let limit = self.shell.config.crash_after();
                let active = self.heard.values().filter(|at| now - **at < limit).count() as i64;
                all.active.set(active);
                all.active_heartbeats.set(active);
            }
            (false, None) => {}
        }
    }

    /// Every transition is told, also those that were passed through at once.
    fn show_transitions(&mut self) {
        let Some(last) = self.core.history().last() else { return };
        let at_last = self.core.history().filter(|went| went.at == last.at).count();
        if (last.at, at_last) == (self.since, self.transitions) {
            return;
        }
        let new = self.core.history().filter(|went| went.at >= self.since).skip(self.transitions);
        let mut since = self.since;
        for went in new {
            let stayed = went.at.saturating_sub(since);
            self.shell.metrics.went(went.from, went.to, stayed, self.core.is_leader());
            self.shell.hooks.call(Call::State { from: went.from, to: went.to });
            since = went.at;
        }
        (self.since, self.transitions) = (last.at, at_last);
    }
}
