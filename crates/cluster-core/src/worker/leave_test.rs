//! Leaving, effect by effect, of a worker whose broker answers everything that a test does not withhold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::cursor::tests::cursor;
use crate::types::{
    Assignment, AssignmentMap, Claim, Entry, Epoch, Incarnation, Key, Lifecycle, LogId, PartitionList, Pod,
    Revision, Sequence, Time, Value, Version, Weight, WorkerId, WorkerIncarnation,
};
use crate::{
    Condition, Config, Cursor, Effect, Event, LastMessage, LogInfo, LogInspection, LogPage, Message,
    Position, PreviousOwner, ProcessOutcome, Purpose, RequestId, WorkerCore, WriteError, Written,
};

/// A worker, its broker and its log.
struct TestWorker {
    core: WorkerCore,
    now: Time,
    stored: BTreeMap<Key, Entry>,
    last_revision: u64,
    /// Sequences of the messages of each partition.
    messages: BTreeMap<Arc<str>, Vec<u64>>,
    last_sequence: u64,
    /// Writes that are applied and not answered.
    withheld: Option<Purpose>,
    /// Requests that are neither applied nor answered until [`TestWorker::deliver`].
    delayed: Option<Purpose>,
    requests: Vec<Effect>,
    /// Purposes of all writes and deletes so far.
    written: Vec<Purpose>,
    canceled: Vec<Arc<str>>,
    running: BTreeMap<Arc<str>, RequestId>,
    has_exited: bool,
}

impl TestWorker {
    /// Starts the only worker of a fleet and waits until it owns these partitions.
    fn new(partitions: &[&str]) -> Self {
        let mut worker = Self::with(Config { fleet_size: Some(1), ..Config::default() });
        worker.begin(partitions);
        worker
    }

    /// Connects the worker and waits until it owns these partitions.
    fn begin(&mut self, partitions: &[&str]) {
        let listed: Arc<PartitionList> =
            partitions.iter().map(|&name| (Arc::from(name), Weight(1))).collect();
        self.handle(Event::Partitions(listed));
        self.handle(Event::Synced);
        self.wait(10);
        assert_eq!(self.core.owned(), partitions.len());
    }

    fn with(config: Config) -> Self {
        Self {
            core: WorkerCore::new(Time::ZERO, pod("pod"), config),
            now: Time::ZERO,
            stored: BTreeMap::new(),
            last_revision: 0,
            messages: BTreeMap::new(),
            last_sequence: 0,
            withheld: None,
            delayed: None,
            requests: Vec::new(),
            written: Vec::new(),
            canceled: Vec::new(),
            running: BTreeMap::new(),
            has_exited: false,
        }
    }

    /// Starts a worker that has committed one message of each partition.
    fn busy(partitions: &[&str]) -> Self {
        let mut worker = Self::new(partitions);
        for &partition in partitions {
            worker.publish(partition);
            worker.finish(partition);
            assert_eq!(worker.cursor(partition).owner, worker.holder());
        }
        worker.written.clear();
        worker
    }

    /// Stores a value that another process writes, and shows it to the worker.
    fn store(&mut self, key: &Key, value: Value) {
        self.write(key, value, Condition::None).unwrap();
        if !matches!(key, Key::Cursor(_)) {
            let entry = self.stored.get(key).cloned();
            self.handle(Event::Watched { key: key.clone(), entry, retained: false });
        }
    }

    fn holder(&self) -> WorkerIncarnation {
        self.core.incarnation().expect("an id")
    }

    fn cursor(&self, partition: &str) -> &Cursor {
        match &self.stored[&Key::Cursor(partition.into())].value {
            Value::Cursor(cursor) => cursor,
            other => panic!("{other:?}"),
        }
    }

    fn publish(&mut self, partition: &str) {
        self.last_sequence += 1;
        self.messages.entry(partition.into()).or_default().push(self.last_sequence);
        self.handle(Event::WakeUp(partition.into()));
    }

    /// Ends the message that runs for a partition.
    fn finish(&mut self, partition: &str) {
        let request_id = self.running.remove(partition).expect("a message runs");
        self.handle(Event::Processed { request_id, outcome: ProcessOutcome::Done });
    }

    /// Lets seconds pass.
    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds * 4 {
            self.now += Duration::from_millis(250);
            self.handle(Event::Tick);
        }
    }

    /// Sends the leave and reports that the application has drained.
    fn shut_down(&mut self) {
        self.handle(Event::Shutdown);
        self.handle(Event::Drained);
    }

    /// Applies and answers the requests that were delayed.
    fn deliver(&mut self) {
        self.delayed = None;
        let mut events = VecDeque::new();
        for request in std::mem::take(&mut self.requests) {
            self.apply(request, &mut events);
        }
        events.into_iter().for_each(|event| self.handle(event));
    }

    fn handle(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut effects = Vec::new();
            self.core.handle(self.now, event, &mut effects);
            effects.into_iter().for_each(|effect| self.apply(effect, &mut events));
        }
    }

    fn apply(&mut self, effect: Effect, events: &mut VecDeque<Event>) {
        let purpose = match &effect {
            Effect::Write { request_id, .. } | Effect::Delete { request_id, .. } => Some(request_id.purpose),
            _ => None,
        };
        if purpose.is_some() && purpose == self.delayed {
            self.requests.push(effect);
            return;
        }
        self.written.extend(purpose.filter(|purpose| !matches!(purpose, Purpose::Heartbeat)));
        match effect {
            Effect::Write { request_id, key, value, condition } => {
                let result = self.write(&key, value, condition);
                let entry = self.stored.get(&key).cloned();
                if !matches!(key, Key::Cursor(_)) {
                    events.push_back(Event::Watched { key, entry, retained: false });
                }
                if self.withheld != Some(request_id.purpose) {
                    events.push_back(Event::Written { request_id, result });
                }
            }
            Effect::Delete { request_id, key, .. } => {
                self.stored.remove(&key);
                events.push_back(Event::Watched { key, entry: None, retained: false });
                let written = Written { revision: Revision(self.last_revision), stored_at: 0 };
                events.push_back(Event::Written { request_id, result: Ok(written) });
            }
            Effect::Read { request_id, key } => {
                events.push_back(Event::Fetched { request_id, result: Ok(self.stored.get(&key).cloned()) });
            }
            Effect::ReadCursors { request_id, partitions } => {
                let keys = partitions.into_iter().map(Key::Cursor);
                let found = keys.map(|key| self.stored.get(&key).cloned()).collect();
                events.push_back(Event::Cursors { request_id, result: Ok(found) });
            }
            Effect::InspectLog { request_id, partitions } => {
                let last = |name: &Arc<str>| {
                    let sequence = *self.messages.get(name)?.last()?;
                    Some(LastMessage {
                        sequence: Sequence(sequence),
                        message_id: message(sequence).message_id,
                    })
                };
                let lasts = partitions.iter().map(last).collect();
                events.push_back(Event::LogInspected {
                    request_id,
                    result: Ok(LogInspection { info: self.info(), last_messages: lasts }),
                });
            }
            Effect::ReadRecoveryPoint { request_id, .. } => {
                events.push_back(Event::RecoveryPointRead { request_id, result: Ok(None) })
            }
            Effect::ReadLog { request_id, partition, from, from_leader: leader } => {
                let messages = self.messages.get(&partition).into_iter().flatten();
                let messages = messages.filter(|&&sequence| Sequence(sequence) >= from).take(2);
                let messages = messages.map(|&sequence| message(sequence)).collect();
                let info = leader.then(|| self.info());
                events.push_back(Event::LogRead { request_id, result: Ok(LogPage { info, messages }) });
            }
            Effect::Process { request_id, partition, .. } => drop(self.running.insert(partition, request_id)),
            Effect::Cancel { partition } => self.canceled.push(partition),
            Effect::Exit => self.has_exited = true,
            _ => {}
        }
    }

    fn write(&mut self, key: &Key, value: Value, condition: Condition) -> Result<Written, WriteError> {
        let found = self.stored.get(key).map(|entry| entry.revision);
        let holds = match condition {
            Condition::None => true,
            Condition::Absent => found.is_none(),
            Condition::Revision(expected) => found == Some(expected),
        };
        if !holds {
            return Err(WriteError::Conflict);
        }
        self.last_revision += 1;
        let (revision, stored_at) = (Revision(self.last_revision), self.last_revision);
        self.stored.insert(key.clone(), Entry { value, revision, stored_at });
        Ok(Written { revision, stored_at })
    }

    fn info(&self) -> LogInfo {
        LogInfo { log_id: LogId(11), first: Sequence(1), last: Sequence(self.last_sequence) }
    }
}

fn pod(name: &str) -> Pod {
    Pod { name: name.into(), uid: name.into() }
}

fn message(sequence: u64) -> Message {
    let context = format!("run-{sequence}").into();
    Message {
        sequence: Sequence(sequence),
        message_id: context,
        stored_at: 50 + sequence,
        payload: Arc::from([]),
    }
}

#[test]
fn a_leaving_worker_releases_its_cursors_then_writes_its_leave_record_and_releases_its_id_last() {
    let mut worker = TestWorker::busy(&["tool:1", "tool:2"]);
    let holder = worker.holder();
    worker.shut_down();
    assert!(worker.has_exited);
    let order = [
        Purpose::ReleaseCursor,
        Purpose::ReleaseCursor,
        Purpose::LeaveRecord,
        Purpose::Resign,
        Purpose::Release,
    ];
    assert_eq!(worker.written, order);
    for partition in ["tool:1", "tool:2"] {
        let cursor = worker.cursor(partition);
        assert!(cursor.released && cursor.owner == holder, "{cursor:?}");
    }
}

#[test]
fn a_cursor_of_another_worker_is_not_released() {
    let mut worker = TestWorker::new(&["tool:1"]);
    let foreign =
        Cursor { position: Position::default(), message_id: None, watermark: Sequence(0), ..cursor() };
    worker.store(&Key::Cursor("tool:1".into()), Value::Cursor(Arc::new(foreign)));
    worker.wait(15);
    worker.written.clear();
    worker.shut_down();
    assert_eq!(worker.written, [Purpose::LeaveRecord, Purpose::Resign, Purpose::Release]);
}

#[test]
fn the_leave_record_waits_for_the_answer_to_a_release_but_not_beyond_the_drain_time() {
    let mut worker = TestWorker::busy(&["tool:1"]);
    worker.withheld = Some(Purpose::ReleaseCursor);
    worker.shut_down();
    worker.wait(24);
    assert_eq!(worker.written, [Purpose::ReleaseCursor, Purpose::Renew, Purpose::Renew]);
    worker.wait(2);
    assert!(worker.written.contains(&Purpose::LeaveRecord) && worker.has_exited, "{:?}", worker.written);
}

#[test]
fn a_refused_release_is_given_up() {
    let mut worker = TestWorker::busy(&["tool:1"]);
    let other = WorkerIncarnation { id: WorkerId(7), incarnation: Incarnation(1) };
    let taken = worker.cursor("tool:1").taken_over(other, Version(1), PreviousOwner::Crashed);
    worker.store(&Key::Cursor("tool:1".into()), Value::Cursor(Arc::new(taken.clone())));
    worker.shut_down();
    assert!(worker.has_exited);
    assert_eq!(*worker.cursor("tool:1"), taken);
}

#[test]
fn a_message_that_is_abandoned_at_the_drain_limit_is_not_released_and_the_others_are() {
    let mut worker = TestWorker::busy(&["tool:1", "tool:2"]);
    worker.publish("tool:1");
    worker.shut_down();
    assert_eq!(worker.written.last(), Some(&Purpose::ReleaseCursor), "the idle partition does not wait");
    assert!(worker.cursor("tool:2").released);
    worker.wait(26);
    assert_eq!(worker.canceled, ["tool:1".into()]);
    assert!(worker.has_exited && !worker.cursor("tool:1").released);
}

#[test]
fn a_message_that_ends_while_the_worker_drains_is_committed_and_its_cursor_released() {
    let mut worker = TestWorker::busy(&["tool:1"]);
    worker.publish("tool:1");
    worker.shut_down();
    assert!(!worker.has_exited);
    worker.finish("tool:1");
    let cursor = worker.cursor("tool:1");
    assert!(worker.has_exited && cursor.released && cursor.position.sequence == Sequence(2), "{cursor:?}");
}

#[test]
fn a_takeover_that_is_answered_after_the_leave_began_is_released() {
    let mut worker = TestWorker::with(Config { fleet_size: Some(1), ..Config::default() });
    worker.delayed = Some(Purpose::Cursor);
    worker.begin(&["tool:1"]);
    assert_eq!(worker.requests.len(), 1, "the takeover is on its way");
    worker.shut_down();
    assert!(!worker.has_exited);
    worker.deliver();
    assert!(worker.has_exited && worker.cursor("tool:1").released);
}

/// Starts a worker whose fence is closed, and tells it to leave.
fn leaving_behind_the_fence() -> TestWorker {
    let mut worker = TestWorker::busy(&["tool:1"]);
    worker.delayed = Some(Purpose::Heartbeat);
    worker.wait(6);
    assert!(worker.core.is_fenced(worker.now));
    worker.shut_down();
    worker.wait(10);
    assert!(!worker.has_exited);
    assert!(!worker.written.contains(&Purpose::ReleaseCursor), "{:?}", worker.written);
    worker
}

#[test]
fn a_fenced_worker_releases_its_cursors_when_its_fence_opens_within_the_drain_time() {
    let mut worker = leaving_behind_the_fence();
    worker.deliver();
    worker.wait(5);
    assert!(worker.has_exited && worker.cursor("tool:1").released, "{:?}", worker.written);
}

#[test]
fn a_worker_that_stays_fenced_leaves_at_the_end_of_the_drain_time_without_a_write_of_its_cursors() {
    let mut worker = leaving_behind_the_fence();
    worker.wait(16);
    worker.deliver();
    worker.wait(1);
    assert!(worker.has_exited && !worker.cursor("tool:1").released, "{:?}", worker.written);
}

/// Returns a map that gives one partition to `owner`, in a fleet of as many workers as it names.
fn map(version: u64, workers: &[u32], owner: u32) -> Value {
    let assignment = Assignment { owner: WorkerId(owner), weight: Weight(1), adopted: false };
    Value::Map(Arc::new(AssignmentMap {
        version: Version(version),
        epoch: Epoch(1),
        lifecycle: Lifecycle::Stable,
        workers: workers.iter().map(|&id| WorkerId(id)).collect::<BTreeSet<_>>(),
        assignments: BTreeMap::from([("tool:1".into(), assignment)]),
        fleet_size: Some(workers.len() as u32),
        moved: 0,
        moved_weight: Weight(0),
        lower_bound_weight: Weight(0),
    }))
}

#[test]
fn a_worker_that_retires_its_id_releases_the_cursors_of_partitions_that_moved_away() {
    let mut worker =
        TestWorker::with(Config { fleet_size: Some(2), controller_enabled: false, ..Config::default() });
    worker.store(&Key::Claim(WorkerId(0)), Value::Claim(Claim { pod: pod("other"), renewals: 0 }));
    worker.handle(Event::Synced);
    worker.store(&Key::Map, map(1, &[0, 1], 1));
    worker.publish("tool:1");
    worker.finish("tool:1");
    let holder = worker.holder();
    worker.written.clear();
    worker.store(&Key::Map, map(2, &[0], 0));
    assert_eq!(worker.written, [], "a partition that moves is not released by its former owner");
    worker.store(&Key::FleetSize, Value::FleetSize(1));
    assert_eq!(worker.written, [Purpose::ReleaseCursor, Purpose::LeaveRecord, Purpose::Release]);
    let cursor = worker.cursor("tool:1");
    assert!(cursor.released && cursor.owner == holder, "{cursor:?}");
    assert!(worker.core.is_standby());
}

#[test]
fn a_leaving_worker_that_loses_its_id_serves_nothing_under_the_next_one() {
    let mut worker = TestWorker::busy(&["a"]);
    worker.publish("a");
    worker.handle(Event::Shutdown);
    let lost = worker.holder();
    worker.stored.remove(&Key::Claim(lost.id));
    worker.running.clear();
    worker.wait(12);
    assert_eq!(worker.canceled, [Arc::from("a")], "the running message is canceled with the id");
    assert!(worker.running.is_empty(), "{:?}", worker.running);
    assert_eq!(worker.cursor("a").owner, lost);
}
