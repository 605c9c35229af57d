//! The way of messages, effect by effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::cursor::tests::{cursor, holder};
use crate::facts::tests::healthy_facts;
use crate::io::{
    Condition, LastMessage, LogInfo, LogPage, Message, Notice, ProcessOutcome, RequestId, WriteError, Written,
};
use crate::roster::tests::beat_of;
use crate::types::{
    AssignmentMap, Epoch, Heartbeat, Key, Lifecycle, LogId, Revision, Sequence, Value, Weight,
};
use crate::{Cursor, Position, PreviousOwner, ProcessRequest};

/// One partition, whose cursor another worker left at sequence 7 of log 11.
struct Scene {
    consumer: Consumer,
    facts: Facts,
    outbox: Outbox,
}

const NAME: &str = "tool:1";

fn name() -> Arc<str> {
    NAME.into()
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

fn entry(cursor: Cursor, revision: u64) -> Entry {
    Entry { value: Value::Cursor(Arc::new(cursor)), revision: Revision(revision), stored_at: 0 }
}

/// The cursor as this worker takes it from one that left.
fn taken() -> Cursor {
    cursor().taken_over(holder(2, 9), Version(3), PreviousOwner::Released)
}

impl Scene {
    fn new() -> Self {
        let mut facts = healthy_facts(5);
        let leave_record = Heartbeat { left: true, ..beat_of(holder(1, 1)) };
        facts.roster.record_heartbeat(holder(1, 1).id, &leave_record, false, facts.now, &facts.clock);
        let map = AssignmentMap {
            version: Version(3),
            epoch: Epoch(1),
            lifecycle: Lifecycle::Stable,
            workers: BTreeSet::from([holder(2, 9).id]),
            assignments: BTreeMap::new(),
            fleet_size: None,
            moved: 0,
            moved_weight: Weight(0),
            lower_bound_weight: Weight(0),
        };
        facts.map = Some((Arc::new(map), Revision(1)));
        facts.identity = Some(holder(2, 9));
        facts.now = Time::from_secs(10);
        facts.broker_time = 90;
        Self { consumer: Consumer::default(), facts, outbox: Outbox::default() }
    }

    /// Gains the partition, and goes on until its message 8 runs.
    fn running() -> Self {
        let mut scene = Self::new();
        scene.gain();
        scene.event(Event::Cursors {
            request_id: request_id(Purpose::ReadCursors, 1),
            result: Ok(vec![Some(entry(cursor(), 40))]),
        });
        scene.surveyed(2, 8);
        scene.written(3, Ok(41));
        let out = scene.paged(4, &[7, 8]);
        assert!(matches!(out[..], [Effect::Process { .. }]), "{out:?}");
        scene
    }

    fn gain(&mut self) -> Vec<Effect> {
        self.change(vec![name()], Vec::new());
        self.pass()
    }

    fn change(&mut self, added: Vec<Arc<str>>, removed: Vec<Arc<str>>) {
        self.consumer.apply_change(&AssignmentChange { added, removed }, self.facts.policy());
    }

    fn pass(&mut self) -> Vec<Effect> {
        self.consumer.run_due(&self.facts, &mut self.outbox);
        self.outbox.take()
    }

    fn event(&mut self, event: Event) -> Vec<Effect> {
        self.consumer.handle_event(event, &self.facts, &mut self.outbox);
        self.pass()
    }

    fn surveyed(&mut self, serial: u64, last: u64) -> Vec<Effect> {
        let info = LogInfo { log_id: LogId(11), first: Sequence(1), last: Sequence(last) };
        let context = message(last).message_id;
        let lasts = vec![Some(LastMessage { sequence: Sequence(last), message_id: context })];
        let result = Ok(LogInspection { info, last_messages: lasts });
        self.event(Event::LogInspected { request_id: request_id(Purpose::InspectLog, serial), result })
    }

    fn written(&mut self, serial: u64, result: Result<u64, WriteError>) -> Vec<Effect> {
        let result = result.map(|revision| Written { revision: Revision(revision), stored_at: 0 });
        self.event(Event::Written { request_id: request_id(Purpose::Cursor, serial), result })
    }

    fn paged(&mut self, serial: u64, sequences: &[u64]) -> Vec<Effect> {
        let messages = sequences.iter().map(|&sequence| message(sequence)).collect();
        let info = Some(LogInfo { log_id: LogId(11), first: Sequence(1), last: Sequence(8) });
        self.event(Event::LogRead {
            request_id: request_id(Purpose::ReadLog, serial),
            result: Ok(LogPage { info, messages }),
        })
    }

    fn processed(&mut self, serial: u64, outcome: ProcessOutcome) -> Vec<Effect> {
        self.event(Event::Processed { request_id: request_id(Purpose::Process, serial), outcome })
    }
}

fn request_id(purpose: Purpose, serial: u64) -> RequestId {
    RequestId { purpose, serial }
}

fn swap(serial: u64, cursor: Cursor, revision: u64) -> Effect {
    Effect::Write {
        request_id: request_id(Purpose::Cursor, serial),
        key: Key::Cursor(name()),
        value: Value::Cursor(Arc::new(cursor)),
        condition: Condition::Revision(Revision(revision)),
    }
}

fn read(serial: u64, from: u64, leader: bool) -> Effect {
    Effect::ReadLog {
        request_id: request_id(Purpose::ReadLog, serial),
        partition: name(),
        from: Sequence(from),
        from_leader: leader,
    }
}

/// The work that message 8 is under a cursor.
fn work(cursor: &Cursor, attempt: u32) -> ProcessRequest {
    ProcessRequest {
        message: message(8),
        position: Position { sequence: Sequence(8), ..cursor.position },
        committed: cursor.state_position,
        log_id: Some(LogId(11)),
        fencing_token: cursor.fencing_token,
        write_timestamp: cursor.next_write_timestamp(58),
        attempt,
        ignore_cache: true,
    }
}

#[test]
fn a_gained_partition_is_looked_at_taken_read_processed_and_committed_in_this_order() {
    let mut scene = Scene::new();
    let partitions = vec![name()];
    assert_eq!(
        scene.gain(),
        [Effect::ReadCursors {
            request_id: request_id(Purpose::ReadCursors, 1),
            partitions: partitions.clone()
        }]
    );
    let cursors = Event::Cursors {
        request_id: request_id(Purpose::ReadCursors, 1),
        result: Ok(vec![Some(entry(cursor(), 40))]),
    };
    assert_eq!(
        scene.event(cursors),
        [Effect::InspectLog { request_id: request_id(Purpose::InspectLog, 2), partitions }]
    );
    assert_eq!(scene.surveyed(2, 8), [swap(3, taken(), 40)]);
    assert_eq!(scene.written(3, Ok(41)), [read(4, 7, true)]);
    assert_eq!(
        scene.paged(4, &[7, 8]),
        [Effect::Process {
            request_id: request_id(Purpose::Process, 5),
            partition: name(),
            work: Box::new(work(&taken(), 1))
        }]
    );
    let committed = taken().committed(Sequence(8), message(8).message_id, taken().next_write_timestamp(58));
    assert_eq!(scene.processed(5, ProcessOutcome::Done), [swap(6, committed, 41)]);
    assert_eq!(
        scene.written(6, Ok(42)),
        [
            Effect::Notice(Notice::Committed {
                partition: name(),
                position: work(&taken(), 1).position,
                dead: false
            }),
            read(7, 8, false)
        ]
    );
}

#[test]
fn an_idle_partition_costs_nothing_after_it_was_looked_at() {
    let mut scene = Scene::new();
    scene.gain();
    let cursors = vec![Some(entry(cursor(), 40))];
    scene.event(Event::Cursors { request_id: request_id(Purpose::ReadCursors, 1), result: Ok(cursors) });
    assert_eq!(scene.surveyed(2, 7), []);
    assert_eq!(scene.pass(), []);
}

#[test]
fn a_swap_without_an_answer_is_settled_by_reading_and_repeated_if_nothing_happened() {
    let mut scene = Scene::running();
    scene.processed(5, ProcessOutcome::Done);
    let settle = Effect::Read { request_id: request_id(Purpose::ReadCursor, 7), key: Key::Cursor(name()) };
    assert_eq!(scene.written(6, Err(WriteError::Unknown)), [settle]);
    let committed = taken().committed(Sequence(8), message(8).message_id, taken().next_write_timestamp(58));
    let unchanged = Event::Fetched {
        request_id: request_id(Purpose::ReadCursor, 7),
        result: Ok(Some(entry(taken(), 41))),
    };
    assert_eq!(scene.event(unchanged), [swap(8, committed.clone(), 41)]);
    // The first one landed after all: the second is refused, and reading shows that it is ours.
    scene.written(8, Err(WriteError::Conflict));
    let ours = Event::Fetched {
        request_id: request_id(Purpose::ReadCursor, 9),
        result: Ok(Some(entry(committed, 42))),
    };
    assert!(matches!(
        scene.event(ours)[0],
        Effect::Notice(Notice::Committed { position: Position { sequence: Sequence(8), .. }, .. })
    ));
}

#[test]
fn a_swap_that_another_owner_came_before_drops_the_partition() {
    let mut scene = Scene::running();
    scene.processed(5, ProcessOutcome::Done);
    scene.written(6, Err(WriteError::Conflict));
    let theirs = taken().taken_over(holder(3, 1), Version(3), PreviousOwner::Crashed);
    let event = Event::Fetched {
        request_id: request_id(Purpose::ReadCursor, 7),
        result: Ok(Some(entry(theirs, 42))),
    };
    assert_eq!(
        scene.event(event),
        [Effect::ReadCursors { request_id: request_id(Purpose::ReadCursors, 8), partitions: vec![name()] }]
    );
}

#[test]
fn a_dead_letter_is_recorded_stored_published_and_skipped_in_this_order() {
    let mut scene = Scene::running();
    let reason: Arc<str> = "a corrupt blob".into();
    let condemned = taken().with_dead_letter(Sequence(8), &reason);
    assert_eq!(scene.processed(5, ProcessOutcome::Poison(reason.clone())), [swap(6, condemned.clone(), 41)]);
    let grave = Box::new(work(&condemned, 1));
    assert_eq!(
        scene.written(6, Ok(42)),
        [Effect::RecordDeadLetter {
            request_id: request_id(Purpose::RecordDeadLetter, 7),
            partition: name(),
            work: grave.clone(),
            reason: reason.clone()
        }]
    );
    let buried =
        Event::DeadLetterStep { request_id: request_id(Purpose::RecordDeadLetter, 7), happened: true };
    assert_eq!(
        scene.event(buried),
        [Effect::PublishDeadLetter {
            request_id: request_id(Purpose::PublishDeadLetter, 8),
            partition: name(),
            work: grave,
            reason
        }]
    );
    let published =
        Event::DeadLetterStep { request_id: request_id(Purpose::PublishDeadLetter, 8), happened: true };
    let passed = condemned.committed(Sequence(8), message(8).message_id, condemned.next_write_timestamp(58));
    assert_eq!(scene.event(published), [swap(9, passed, 42)]);
}

#[test]
fn a_store_that_is_away_costs_no_attempt_and_the_next_one_has_a_take_of_its_own() {
    let mut scene = Scene::running();
    let again = taken().taken_over(holder(2, 9), Version(3), PreviousOwner::SameWorker);
    assert_eq!(scene.processed(5, ProcessOutcome::Unavailable), [swap(6, again.clone(), 41)]);
    assert_eq!(scene.written(6, Ok(42)), []);
    scene.facts.now += Duration::from_secs(1);
    assert_eq!(scene.pass(), [read(7, 7, false)]);
    assert_eq!((again.failures, again.worker_crashes), (0, 0));
}

#[test]
fn a_lost_partition_finishes_what_runs_and_is_let_go_of_then() {
    let mut scene = Scene::running();
    scene.change(Vec::new(), vec![name()]);
    assert!(!scene.consumer.has_released_all());
    scene.processed(5, ProcessOutcome::Done);
    assert!(!scene.consumer.has_released_all());
    scene.written(6, Ok(42));
    assert!(scene.consumer.has_released_all());
}

#[test]
fn behind_the_fence_everything_is_forgotten_and_looked_at_again() {
    let mut scene = Scene::running();
    scene.consumer.fence(scene.facts.policy());
    assert_eq!(scene.processed(5, ProcessOutcome::Done).len(), 1, "only the new look");
}

#[test]
fn behind_the_fence_nothing_starts_beside_an_isolated_attempt_until_the_next_takeover() {
    let mut scene = Scene::new();
    scene.gain();
    let suspected = Cursor { worker_crashes: 3, ..cursor() };
    scene.event(Event::Cursors {
        request_id: request_id(Purpose::ReadCursors, 1),
        result: Ok(vec![Some(entry(suspected, 40))]),
    });
    scene.surveyed(2, 8);
    scene.written(3, Ok(41));
    let isolating = scene.paged(4, &[7, 8]);
    assert!(
        matches!(isolating[..], [Effect::Write { .. }]),
        "the cursor announces the attempt: {isolating:?}"
    );
    let out = scene.written(5, Ok(42));
    assert!(matches!(out[..], [Effect::Process { .. }]), "{out:?}");
    scene.consumer.fence(scene.facts.policy());
    assert_eq!(scene.consumer.isolated, Some(name()));
    scene.pass();
    scene.consumer.check();
}
