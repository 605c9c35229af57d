//! Execution of the effects of a worker, and reports to the oracle.

use std::time::Duration;

use phalanx_cluster_core::types::Key;
use phalanx_cluster_core::{Effect, Event, Notice, ProcessOutcome, Purpose, RequestId};

use crate::event::SimEvent;
use crate::fleet::ProcessId;
use crate::handler::ProcessingRun;
use crate::world::World;

/// The time in which an application releases removed partitions, or drains.
const RELEASE_TIME: Duration = Duration::from_millis(50);

impl World {
    /// Executes effects in their order, while the process lives. Separate from `deliver`, because most events have none.
    #[inline(never)]
    pub(super) fn execute_all(&mut self, process: ProcessId, effects: Vec<Effect>) {
        let now = self.now;
        for effect in effects {
            match self.fleet.get_mut(process).may_execute() {
                Some(true) => {}
                Some(false) => return,
                None => {
                    self.kill(process);
                    return;
                }
            }
            self.observe(process, &effect);
            self.trace.line(now, || format!("{process} -> {effect:?}"));
            self.execute(process, effect);
        }
        self.check_identity(process);
        self.schedule_deadline(process);
    }

    /// Tells the oracle what a process is about to do.
    fn observe(&mut self, process: ProcessId, effect: &Effect) {
        let now = self.now;
        // A machine whose clock was suspended cannot know when its fence closes.
        let knows_time = !self.fleet.get(process).lost_time;
        let what = match effect {
            Effect::Write { request_id, key, .. } => {
                if let Key::Cursor(name) = key {
                    let partition = self.traffic.partition(name);
                    self.oracle.cursor_write_sent(process, *request_id, partition);
                }
                match request_id.purpose {
                    Purpose::Heartbeat => {
                        self.oracle.heartbeat_sent(now, process, *request_id);
                        return;
                    }
                    Purpose::LeaveRecord => {
                        let target = self.fleet.get(process);
                        self.oracle.leave_record_sent(process, target.worker.is_fenced(target.clock(now)));
                        return;
                    }
                    Purpose::TouchMap | Purpose::PublishMap | Purpose::WriteState => "leads",
                    Purpose::Cursor | Purpose::ReleaseCursor => "writes a cursor",
                    _ => return,
                }
            }
            Effect::Delete { request_id, .. } => {
                if request_id.purpose == Purpose::Release {
                    let target = self.fleet.get(process);
                    self.oracle.left(process, target.worker.is_fenced(target.clock(now)));
                }
                return;
            }
            Effect::Process { .. } => "starts a message",
            Effect::RecordDeadLetter { .. } | Effect::PublishDeadLetter { .. } => "dead-letters a message",
            _ => return,
        };
        if knows_time {
            self.oracle.check_fence(now, process, what);
        }
    }

    fn check_identity(&mut self, process: ProcessId) {
        let worker = &self.fleet.get(process).worker;
        let was_taken = || worker.history().last().is_some_and(|last| last.cause == "identity lost");
        let identity = (worker.incarnation(), was_taken);
        self.oracle.check_identity(self.now, process, identity, &self.fleet);
    }

    fn execute(&mut self, process: ProcessId, effect: Effect) {
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
                self.ask_store(process, effect);
            }
            Effect::Process { request_id, partition, work } => {
                let partition = self.traffic.partition(&partition);
                self.begin_run(process, partition, ProcessingRun::new(request_id, work));
            }
            Effect::Cancel { partition } => {
                let partition = self.traffic.partition(&partition);
                self.fleet.get_mut(process).handler.runs.remove(&partition);
                self.oracle.on_processing_ended(process, partition);
                self.oracle.doubt(process, partition);
            }
            Effect::Assign { version, added, removed } => {
                let subscriptions = &mut self.network.link_mut(process).subscriptions;
                subscriptions.extend(added.iter().map(|name| self.traffic.partition(name)));
                for name in &removed {
                    subscriptions.remove(&self.traffic.partition(name));
                }
                if !removed.is_empty() {
                    self.later(RELEASE_TIME, SimEvent::Arrival(process, Event::Released(version)));
                }
            }
            Effect::Drain => self.later(RELEASE_TIME, SimEvent::Arrival(process, Event::Drained)),
            Effect::Exit => self.end(process),
            Effect::Fence => self.drop_runs(process),
            Effect::Notice(notice) => self.notice(process, &notice),
            Effect::Grant { .. } | Effect::Warn(_) => {}
        }
    }

    fn notice(&mut self, process: ProcessId, notice: &Notice) {
        let kind = match notice {
            Notice::Committed { partition, .. } => {
                let partition = self.traffic.partition(partition);
                self.fleet.get_mut(process).handler.committed(partition);
                return;
            }
            Notice::Expired { partition, after, before } => {
                self.oracle.reported_expired(self.traffic.partition(partition), *after, *before);
                "expired"
            }
            Notice::LogReplaced { .. } => "logReplaced",
            Notice::Adopted { .. } => "adopted",
            Notice::RestartDetected => "restartDetected",
            Notice::Planned(_) => "planned",
        };
        *self.notices.entry(kind).or_default() += 1;
    }
}

/// Returns the kind of an event and its request, for the trace hash.
pub(super) fn shape(event: &Event) -> u64 {
    let answer = |kind: u64, request_id: &RequestId, is_ok: bool| {
        kind + (request_id.serial << 8) + (u64::from(is_ok) << 7)
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
