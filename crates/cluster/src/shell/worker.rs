//! One event loop: events in, the core decides, effects out. Nothing here waits for anything but the next event.

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use super::backend_client::{BackendClient, TIMEOUT};
use super::clock;
use super::decoder::MessageDecoder;
use super::gate::Gate;
use super::handle::{Role, Status, WorkerCommand};
use super::handler::{self, Delivery, panic_text};
use super::hook_queue::{AssignmentCall, Completion};
use super::hooks::{HookQueue, OwnedPartition};
use super::metrics::Metrics;
use super::partitions::{self, PartitionSource};
use super::problem::Problem;
use super::subscriptions::{SubscriptionConfig, WakeUpSubscriptions};
use super::watches::{Signal, WATCHED, WatchTask};
use crate::core::types::{PartitionList, Pod, Time, Value, Version, WorkerId};
use crate::core::{
    Config, Effect, Event, Notice, ProcessOutcome, ProcessRequest, Purpose, ReadError, RequestId, Warning,
    WorkerCore, WorkerState,
};
use crate::names::Bucket;

/// So many events are handled before the clock is looked at again.
const MAX_EVENTS_PER_ITERATION: usize = 256;
/// What leaving may take beyond the drain: each of its writes may run into its time-out.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(20);

/// Number of signals that may wait for the event loop. While there are more, watches, requests and wake-up subscriptions
/// wait with theirs.
const MAX_QUEUED_SIGNALS: usize = 4096;
/// Delay before a worker starts again after its session failed.
const RESTART_DELAY: Duration = Duration::from_millis(1250);

/// The parts of a worker that outlive a session of the core.
pub(super) struct WorkerShell {
    pub(super) broker: Arc<BackendClient>,
    pub(super) config: Config,
    pub(super) pod: Pod,
    pub(super) partitions: Arc<PartitionList>,
    pub(super) source: Arc<dyn PartitionSource>,
    /// The handler and its decoded messages; none without a log.
    pub(super) decoder: Option<Arc<MessageDecoder>>,
    pub(super) hooks: HookQueue,
    pub(super) metrics: Metrics,
    pub(super) subscription_config: SubscriptionConfig,
    /// When the event loop last went round, in milliseconds.
    pub(super) turned: Arc<AtomicU64>,
    pub(super) gate: Gate,
    pub(super) status: watch::Sender<Status>,
}

/// The reason for the end of a session.
enum SessionEnd {
    /// The worker has left.
    Exit,
    /// A bucket was recreated, so the knowledge of the core is outdated.
    Replaced(Bucket),
    /// An assertion of the core was violated, or one of its tasks panicked: the place and the message.
    Violated(String),
}

impl WorkerShell {
    /// Runs until the worker is told to leave and has left.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<WorkerCommand>) {
        loop {
            let session = CoreSession::begin(&mut self);
            let (end, is_leaving) = session.run(&mut orders).await;
            self.gate.set(None);
            match end {
                SessionEnd::Exit => break,
                SessionEnd::Replaced(bucket) => {
                    self.hooks.report(Problem::BucketReplaced(bucket_name(bucket)))
                }
                SessionEnd::Violated(violation) => self.hooks.report(Problem::InvariantViolated(violation)),
            }
            // The command to leave was given to the session that has ended: end as after a crash.
            if is_leaving {
                break;
            }
            // The program that recreates a bucket may need some time for that.
            tokio::time::sleep(RESTART_DELAY).await;
        }
        // A caller that waits for the end has received all calls before.
        self.hooks.flush().await;
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

/// One run of the core with its tasks. Dropping it cancels them.
struct CoreSession<'a> {
    shell: &'a mut WorkerShell,
    core: WorkerCore,
    signals: mpsc::Sender<Signal>,
    inbox: mpsc::Receiver<Signal>,
    /// Requests, watches and handlers.
    tasks: JoinSet<()>,
    /// What processes a message of a partition.
    running: HashMap<Arc<str>, AbortHandle>,
    subscriptions: WakeUpSubscriptions,
    /// The watches that have told what was there.
    synced: BTreeSet<Bucket>,
    owned: BTreeSet<Arc<str>>,
    /// Taken, and not told yet.
    pending_grants: Vec<OwnedPartition>,
    started_at: Time,
    leading_since: Option<Time>,
    shutdown_deadline: Option<Time>,
    transitions: usize,
    since: Time,
}

impl<'a> CoreSession<'a> {
    fn begin(shell: &'a mut WorkerShell) -> Self {
        let now = clock::now();
        let (signals, inbox) = mpsc::channel(MAX_QUEUED_SIGNALS);
        let mut tasks = JoinSet::new();
        let newest_map = Arc::new(AtomicU64::new(0));
        for bucket in WATCHED {
            let (broker, signals, newest_map) = (shell.broker.clone(), signals.clone(), newest_map.clone());
            tasks.spawn(WatchTask { broker, bucket, signals, newest_map }.run());
        }
        let bells = WakeUpSubscriptions::new(
            shell.broker.clone(),
            shell.subscription_config,
            shell.metrics.clone(),
            signals.clone(),
        );
        Self {
            core: WorkerCore::new(now, shell.pod.clone(), shell.config.clone()),
            shell,
            signals,
            inbox,
            tasks,
            running: HashMap::new(),
            subscriptions: bells,
            synced: BTreeSet::new(),
            owned: BTreeSet::new(),
            pending_grants: Vec::new(),
            started_at: now,
            leading_since: None,
            shutdown_deadline: None,
            transitions: 0,
            since: now,
        }
    }

    /// The event loop.
    async fn run(mut self, orders: &mut mpsc::Receiver<WorkerCommand>) -> (SessionEnd, bool) {
        let mut end = self.handle(Event::Partitions(self.shell.partitions.clone()));
        while end.is_none() {
            let now = u64::try_from(clock::now().since_origin().as_millis()).unwrap_or(u64::MAX);
            self.shell.turned.store(now, Ordering::Relaxed);
            let due = [self.core.next_deadline(), self.shutdown_deadline].into_iter().flatten().min();
            let wait = due.map_or(Duration::from_secs(3600), |due| due.saturating_sub(clock::now()));
            tokio::select! {
                biased;
                Some(signal) = self.inbox.recv() => {
                    end = self.on_signal(signal);
                    for _ in 0..MAX_EVENTS_PER_ITERATION {
                        let Ok(signal) = self.inbox.try_recv() else { break };
                        if end.is_some() { break }
                        end = self.on_signal(signal);
                    }
                }
                Some(order) = orders.recv() => end = self.on_command(order),
                Some(ended) = self.tasks.join_next() => end = task_failure(ended),
                () = tokio::time::sleep(wait) => end = self.handle(Event::Tick),
            }
            self.grant();
            if self.shutdown_deadline.is_some_and(|until| clock::now() >= until) {
                end = Some(SessionEnd::Exit);
            }
        }
        self.release_all(Vec::new());
        (end.unwrap_or(SessionEnd::Exit), self.shutdown_deadline.is_some())
    }

    fn on_signal(&mut self, signal: Signal) -> Option<SessionEnd> {
        match signal {
            Signal::Event(event) => self.handle(event),
            Signal::Current(bucket) => {
                let is_new = self.synced.insert(bucket);
                if is_new && self.synced.len() == WATCHED.len() {
                    let took = clock::now() - self.started_at;
                    self.shell.metrics.all.initialization.observe(took.as_secs_f64());
                    return self.handle(Event::Synced);
                }
                None
            }
            // Bells were silent meanwhile: everything is looked at.
            Signal::Resumed => {
                let owned: Vec<_> = self.owned.iter().cloned().collect();
                owned.into_iter().find_map(|partition| self.handle(Event::WakeUp(partition)))
            }
            Signal::Replaced(bucket) => Some(SessionEnd::Replaced(bucket)),
        }
    }

    fn on_command(&mut self, order: WorkerCommand) -> Option<SessionEnd> {
        match order {
            WorkerCommand::Shutdown => {
                self.shell.metrics.all.inflight_at_shutdown.set(self.running.len() as i64);
                let until = clock::now() + self.shell.config.drain_timeout + SHUTDOWN_MARGIN;
                self.shutdown_deadline.get_or_insert(until);
                self.handle(Event::Shutdown)
            }
            WorkerCommand::Refresh(answer) => {
                let (source, signals, hooks) =
                    (self.shell.source.clone(), self.signals.clone(), self.shell.hooks.clone());
                self.tasks.spawn(async move {
                    let loaded = partitions::load(&*source).await;
                    match &loaded {
                        Ok(loaded) => {
                            let _ = signals.send(Signal::Event(Event::Partitions(loaded.clone()))).await;
                        }
                        Err(error) => hooks.report(Problem::Partitions(error.to_string())),
                    }
                    let _ = answer.send(loaded.map(|partitions| partitions.len()));
                });
                None
            }
        }
    }

    /// Gives the core one event, and carries out what it decides.
    fn handle(&mut self, event: Event) -> Option<SessionEnd> {
        if let Event::Partitions(partitions) = &event {
            self.shell.partitions = partitions.clone();
        }
        let mut effects = Vec::new();
        let now = clock::now();
        // A violated assertion is a bug. Its effects are not carried out, and the session ends as after a crash.
        let step = AssertUnwindSafe(|| self.core.handle(now, event, &mut effects));
        if let Err(violation) = catch_unwind(step) {
            return Some(SessionEnd::Violated(panic_text(&*violation)));
        }
        let took = clock::now() - now;
        // Before anything else: what runs must know how long it may.
        self.shell.gate.set(self.core.incarnation().and_then(|_| self.core.unfenced_until()));
        let mut end = None;
        for effect in effects {
            end = end.or(self.execute(effect, took));
        }
        self.publish_status();
        end
    }

    fn execute(&mut self, effect: Effect, took: Duration) -> Option<SessionEnd> {
        let broker = self.shell.broker.clone();
        match effect {
            Effect::Write { request_id, key, value, condition } => {
                self.count_write(request_id.purpose, &value, took);
                if request_id.purpose == Purpose::LeaveRecord {
                    self.subscriptions.close_all();
                }
                let (metrics, signals) = (self.shell.metrics.clone(), self.signals.clone());
                self.tasks.spawn(async move {
                    let event = broker.write(request_id, key, value, condition, took).await;
                    let is_written = matches!(event, Event::Written { result: Ok(_), .. });
                    if request_id.purpose == Purpose::Heartbeat && !is_written {
                        metrics.all.heartbeat_errors.inc();
                    }
                    let _ = signals.send(Signal::Event(event)).await;
                    if request_id.purpose == Purpose::PublishMap
                        && is_written
                        && let Err(error) = broker.delete_old_parts().await
                    {
                        broker.hooks.report(Problem::Backend(error));
                    }
                });
            }
            Effect::Delete { request_id, key, revision } => {
                self.request(async move { broker.delete(request_id, key, revision).await });
            }
            Effect::Read { request_id, key } => {
                self.request(async move { broker.read(request_id, key).await })
            }
            Effect::ReadCursors { request_id, partitions } => {
                self.request(async move { broker.read_cursors(request_id, partitions).await });
            }
            Effect::InspectLog { request_id, partitions } => {
                let decoder = self.shell.decoder.clone()?;
                self.request(async move { broker.inspect_log(request_id, partitions, &decoder).await });
            }
            Effect::ListSubjects { request_id } => {
                let listed = self.shell.partitions.clone();
                self.request(async move { broker.list_subjects(request_id, &listed).await });
            }
            Effect::ReadLog { request_id, partition, from, from_leader: leader } => {
                let decoder = self.shell.decoder.clone()?;
                self.request(
                    async move { broker.read_log(request_id, partition, from, leader, &decoder).await },
                );
            }
            Effect::PublishDeadLetter { request_id, partition, work, reason } => {
                let dead = Problem::DeadLetter {
                    partition: partition.clone(),
                    sequence: work.message.sequence,
                    reason: reason.clone(),
                };
                self.shell.hooks.report(dead);
                self.request(async move { broker.publish_dead(request_id, partition, work, reason).await });
            }
            Effect::ReadRecoveryPoint { request_id, partition } => {
                let handler = self.shell.decoder.as_ref()?.handler();
                self.request(async move {
                    let result =
                        handler::call_with_timeout(TIMEOUT, handler.recovery_point(&partition)).await;
                    Event::RecoveryPointRead { request_id, result: result.map_err(|_| ReadError) }
                });
            }
            Effect::RecordDeadLetter { request_id, partition, work, reason } => {
                let decoder = self.shell.decoder.clone()?;
                let decoded = decoder.value(&partition, &work.message.payload);
                let delivery = Delivery::new(partition, &work, decoded, self.shell.gate.clone());
                self.request(async move {
                    let handler = decoder.handler();
                    let recording = handler.record_dead_letter(delivery, &reason);
                    let recorded = handler::call_with_timeout(TIMEOUT, recording).await;
                    Event::DeadLetterStep { request_id, happened: recorded.is_ok() }
                });
            }
            Effect::Process { request_id, partition, work } => {
                let decoder = self.shell.decoder.clone()?;
                self.process(&decoder, request_id, partition, &work);
            }
            Effect::Cancel { partition } => self.cancel(&partition),
            Effect::Fence => self.cancel_all(),
            Effect::Assign { version, added, removed } => self.assign(version, added, removed),
            Effect::Grant { partition, fencing_token: take } => {
                self.pending_grants.push(OwnedPartition { partition, fencing_token: Some(take) })
            }
            Effect::Drain => self.release_all(vec![self.completion(Event::Drained)]),
            Effect::Notice(notice) => self.notice(notice, took),
            Effect::Warn(warning) => self.shell.hooks.report(match warning {
                Warning::PoolExhausted { ids } => Problem::PoolExhausted { ids },
                Warning::IdentityLost { id } => {
                    let worker = self.shell.broker.config.names.worker(WorkerId(id));
                    Problem::IdentityLost { worker }
                }
                Warning::IdleStandby => Problem::IdleStandby,
            }),
            Effect::Exit => {
                if let Some(until) = self.shutdown_deadline {
                    let began = until.checked_sub(self.shell.config.drain_timeout + SHUTDOWN_MARGIN);
                    let took = clock::now().saturating_sub(began.unwrap_or(Time::ZERO));
                    self.shell.metrics.all.shutdown_duration.observe(took.as_secs_f64());
                }
                return Some(SessionEnd::Exit);
            }
        }
        None
    }

    /// Carries out a request whose answer comes back as an event.
    fn request(&mut self, request: impl Future<Output = Event> + Send + 'static) {
        let signals = self.signals.clone();
        self.tasks.spawn(async move {
            let _ = signals.send(Signal::Event(request.await)).await;
        });
    }

    fn process(
        &mut self,
        decoder: &MessageDecoder,
        request_id: RequestId,
        partition: Arc<str>,
        work: &ProcessRequest,
    ) {
        self.cancel(&partition);
        let decoded = decoder.value(&partition, &work.message.payload);
        let delivery = Delivery::new(partition.clone(), work, decoded, self.shell.gate.clone());
        let handler = decoder.handler();
        let (signals, metrics) = (self.signals.clone(), self.shell.metrics.clone());
        let limit = self.shell.config.process_timeout;
        let task = self.tasks.spawn(async move {
            metrics.all.received.inc();
            let timer = metrics.all.process_time.start_timer();
            let outcome = handler::process(&*handler, delivery, limit).await;
            timer.observe_duration();
            if matches!(outcome, ProcessOutcome::Failed(_) | ProcessOutcome::Poison(_)) {
                metrics.all.failed.inc();
            }
            let _ = signals.send(Signal::Event(Event::Processed { request_id, outcome })).await;
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
            self.subscriptions.close(partition);
            self.owned.remove(partition);
            if let Some(decoder) = &self.shell.decoder {
                decoder.forget(partition);
            }
        }
        for partition in &added {
            self.subscriptions.open(partition);
            self.owned.insert(partition.clone());
        }
        let assignment = Arc::new(self.owned.clone());
        self.shell.status.send_modify(|status| status.assignment = assignment);
        self.shell.metrics.all.assigned.set(self.owned.len() as i64);
        self.pending_grants.retain(|granted| !removed.contains(&granted.partition));
        let with_log = self.shell.config.consumes_log;
        if !with_log && removed.is_empty() {
            return;
        }
        let told = |partition| OwnedPartition { partition, fencing_token: None };
        let added = if with_log { added.into_iter().map(told).collect() } else { Vec::new() };
        let done =
            if removed.is_empty() { Vec::new() } else { vec![self.completion(Event::Released(version))] };
        self.shell.hooks.change_assignment(AssignmentCall { added, removed, done });
    }

    /// Tells what was taken since the last turn, all at once.
    fn grant(&mut self) {
        if !self.pending_grants.is_empty() {
            let added = std::mem::take(&mut self.pending_grants);
            self.shell.hooks.change_assignment(AssignmentCall { added, ..AssignmentCall::default() });
        }
    }

    /// Reports all owned partitions as removed. `done` follows when the hook has returned.
    fn release_all(&mut self, done: Vec<Completion>) {
        self.pending_grants.clear();
        let removed: Vec<_> = std::mem::take(&mut self.owned).into_iter().collect();
        self.shell.status.send_modify(|status| status.assignment = Arc::default());
        if !removed.is_empty() || !done.is_empty() {
            let added = Vec::new();
            self.shell.hooks.change_assignment(AssignmentCall { added, removed, done });
        }
    }

    /// Returns an event that the core gets later.
    fn completion(&self, event: Event) -> Completion {
        Completion { signals: self.signals.clone(), event }
    }

    fn notice(&mut self, notice: Notice, took: Duration) {
        let all = &self.shell.metrics.all;
        let problem = match notice {
            Notice::Committed { partition, position, dead } => {
                if dead { &all.dead_letters } else { &all.processed }.inc();
                if let Some(decoder) = &self.shell.decoder {
                    handler::notify_committed(&*decoder.handler(), &partition, position);
                }
                return;
            }
            Notice::Expired { partition, after, before } => {
                all.expired.inc_by(before.0.saturating_sub(after.next().0));
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
                self.shell.metrics.record_plan(&planned, took);
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
                metrics.record_map(map, took);
            }
            _ => {}
        }
    }

    /// Shows what the core is doing, where that has changed.
    fn publish_status(&mut self) {
        let now = clock::now();
        self.show_transitions();
        let (core, metrics) = (&self.core, &self.shell.metrics);
        // A standby that reaches for a freed id is one until it has it: whoever asks whether it is ready sees no gap.
        let stood_by = self.shell.status.borrow().role == Role::Standby;
        let stands_by = core.is_standby() || stood_by && core.state() == WorkerState::ClaimingId;
        let role = match (core.incarnation(), core.is_leader(), stands_by) {
            (Some(_), true, _) => Role::Leader,
            (Some(_), false, _) => Role::Follower,
            (None, _, true) => Role::Standby,
            (None, _, false) => Role::Claiming,
        };
        let map_version = core.map().map_or(Version(0), |map| map.version);
        let (state, holder, applied) = (core.state(), core.incarnation(), core.applied_version());
        let is_open = core.incarnation().is_some() && core.unfenced_until().is_some();
        let before = self.shell.status.borrow().holder;
        self.shell.status.send_if_modified(|status| {
            let is_same = status.state == state
                && status.role == role
                && status.holder == holder
                && status.is_unfenced == is_open
                && status.map_version == map_version
                && status.applied_version == applied;
            (status.state, status.role, status.holder) = (state, role, holder);
            (status.is_unfenced, status.map_version, status.applied_version) =
                (is_open, map_version, applied);
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
        let (all, names) = (&self.shell.metrics.all, &self.shell.broker.config.names);
        if let Some(before) = before {
            all.stable_id_claimed.with_label_values(&[&names.worker(before)]).set(0);
            all.is_leader.with_label_values(&[&names.worker(before)]).set(0);
        }
        match self.core.incarnation() {
            Some(holder) => {
                all.stable_id.set(i64::from(holder.id.0));
                all.stable_id_claimed.with_label_values(&[&names.worker(holder.id)]).set(1);
                all.claim_duration.observe((now - self.started_at).as_secs_f64());
            }
            None => all.stable_id.set(-1),
        }
    }

    fn show_leadership(&mut self, leads: bool, now: Time) {
        let all = &self.shell.metrics.all;
        if let (true, Some(holder)) = (leads != self.leading_since.is_some(), self.core.incarnation()) {
            let worker = self.shell.broker.config.names.worker(holder.id);
            all.is_leader.with_label_values(&[&worker]).set(i64::from(leads));
        }
        match (leads, self.leading_since) {
            (true, None) => {
                all.controller_started.inc();
                self.leading_since = Some(now);
            }
            (false, Some(since)) => {
                self.shell.metrics.reset_leader_gauges(now - since);
                self.leading_since = None;
            }
            (true, Some(_)) => {
                all.active.set(self.core.live_workers() as i64);
                all.active_heartbeats.set(self.core.heard_workers() as i64);
            }
            (false, None) => {}
        }
    }

    /// Every transition is told, also those that were passed through at once.
    fn show_transitions(&mut self) {
        let Some(last) = self.core.history().last() else { return };
        let at_last = self.core.history().filter(|went| went.at == last.at).count();
        let last_at = Time::from_origin(last.at);
        if (last_at, at_last) == (self.since, self.transitions) {
            return;
        }
        let shown = self.since.since_origin();
        let new = self.core.history().filter(|went| went.at >= shown).skip(self.transitions);
        let mut since = shown;
        for went in new {
            let stayed = went.at.saturating_sub(since);
            self.shell.metrics.record_transition(went.from, went.to, stayed, self.core.is_leader());
            self.shell.hooks.change_state(went.from, went.to);
            since = went.at;
        }
        (self.since, self.transitions) = (last_at, at_last);
    }
}

/// Returns the end of the session if a task panicked: the core would wait for its answer without end.
fn task_failure(ended: Result<(), JoinError>) -> Option<SessionEnd> {
    let panic = ended.err()?.try_into_panic().ok()?;
    Some(SessionEnd::Violated(panic_text(&*panic)))
}
