//! One worker: its parts put together.
//!
//! Each event is noted by the part that it concerns; then one pass over all parts does what is due. The pass asks only what
//! is true now, never what just happened, so the order of events does not matter.
//!
//! Start reading at [`WorkerCore::handle`]. `inputs` handles watched values and answers, `timers` is the pass, `heartbeats`
//! writes heartbeats, `leave` leaves the fleet.

mod heartbeats;
mod inputs;
mod leave;
mod timers;

use std::sync::Arc;
use std::time::Duration;

use phalanx_fsm::{Fsm, Transition};

use self::heartbeats::Heartbeats;
use self::leave::Leave;
use super::WorkerState;
use super::assignment::OwnAssignment;
use super::config::Config;
use super::consumer::Consumer;
use super::controller::Controller;
use super::election::Election;
use super::facts::Facts;
use super::fence::Fence;
use super::identity::Identity;
use super::io::{Effect, Event, Purpose, RequestId};
use super::outbox::Outbox;
use super::shutdown::ShutdownPhase;
use super::types::{AssignmentMap, Pod, Time, Version, WorkerIncarnation};

/// The shortest time between two passes.
const MIN_PASS_INTERVAL: Duration = Duration::from_millis(1);

/// The part of the worker that an event can affect: most events bring nothing new, and many concern one partition only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventScope {
    Nothing,
    Partitions,
    Everything,
}

/// The search for a map that is newer than the known one.
#[derive(Debug, Default)]
struct MapSearch {
    /// The read without an answer.
    read: Option<RequestId>,
    /// Since when a newer map is known to exist.
    outdated_since: Option<Time>,
}

/// The deciding part of one worker: events in, effects out.
#[derive(Debug)]
pub struct WorkerCore {
    facts: Facts,
    outbox: Outbox,
    lifecycle: Fsm<WorkerState>,
    fence: Fence,
    identity: Identity,
    election: Election,
    /// The controller, while this worker leads.
    controller: Option<Controller>,
    assignment: OwnAssignment,
    consumer: Consumer,
    heartbeats: Heartbeats,
    map_search: MapSearch,
    leave: Option<Leave>,
    /// Whether all watches have delivered their first values.
    is_synced: bool,
    /// When something besides the partitions is due.
    next_timer: Option<Time>,
    /// When the worker must be called again.
    deadline: Option<Time>,
}

impl WorkerCore {
    /// Returns the worker of a process that has just started.
    pub fn new(now: Time, pod: Pod, config: Config) -> Self {
        Self {
            outbox: Outbox::default(),
            lifecycle: Fsm::new(now.since_origin()),
            fence: Fence::new(now, &config),
            identity: Identity::new(pod.clone()),
            election: Election::new(),
            controller: None,
            assignment: OwnAssignment::default(),
            consumer: Consumer::default(),
            heartbeats: Heartbeats::new(now),
            map_search: MapSearch::default(),
            leave: None,
            is_synced: false,
            next_timer: None,
            deadline: None,
            facts: Facts::new(now, pod, config),
        }
    }

    /// Returns the state.
    pub fn state(&self) -> WorkerState {
        self.lifecycle.state()
    }

    /// Returns the latest transitions, oldest first.
    pub fn history(&self) -> impl ExactSizeIterator<Item = &Transition<WorkerState>> {
        self.lifecycle.history()
    }

    /// Returns the held id with its incarnation. An id that is being released is not held any more.
    pub fn incarnation(&self) -> Option<WorkerIncarnation> {
        let is_releasing =
            matches!(self.leave_phase(), Some(ShutdownPhase::Releasing(_) | ShutdownPhase::Done));
        self.facts.identity.filter(|_| !is_releasing)
    }

    /// Whether it leads.
    pub fn is_leader(&self) -> bool {
        self.controller.is_some()
    }

    /// Returns the number of changes of the fleet that wait for the end of a window. Only a leader knows them.
    pub fn pending_changes(&self) -> usize {
        self.controller.as_ref().map_or(0, Controller::pending)
    }

    /// Whether it has fenced itself.
    pub fn is_fenced(&self, now: Time) -> bool {
        !self.fence.is_open(now)
    }

    /// Returns the time until which it may work if no heartbeat is acknowledged; none if it has fenced itself.
    pub fn unfenced_until(&self) -> Option<Time> {
        self.fence.closes_at()
    }

    /// Returns the newest map version whose removed partitions are all released.
    pub fn applied_version(&self) -> Version {
        self.assignment.applied()
    }

    /// Returns the newest known map.
    pub fn map(&self) -> Option<&Arc<AssignmentMap>> {
        self.facts.map.as_ref().map(|(map, _)| map)
    }

    /// Returns the number of owned partitions.
    pub fn owned(&self) -> usize {
        self.assignment.len()
    }

    /// Whether it is a standby: it waits for an id to become free.
    pub fn is_standby(&self) -> bool {
        self.state() == WorkerState::ClaimingId && self.is_synced && !self.identity.is_busy()
    }

    /// Returns the number of workers that are heard and not DEGRADED.
    pub fn live_workers(&self) -> usize {
        self.facts.roster.live(self.facts.config.crash_after(), &self.facts.clock).count()
    }

    /// Returns the number of workers that are heard, also those that are DEGRADED.
    pub fn heard_workers(&self) -> usize {
        self.facts.roster.heard(self.facts.config.crash_after(), &self.facts.clock)
    }

    /// Returns the time at which the worker must be called again, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Applies one event and appends the instructions for the shell. Never blocks.
    ///
    /// # Panics
    ///
    /// Panics if an assertion about the state is violated. The effects of that step are lost, and the caller must not use
    /// this worker again: it starts a new one.
    pub fn handle(&mut self, now: Time, event: Event, effects: &mut Vec<Effect>) {
        invariant!(now >= self.facts.now, "time never goes back: {now:?} after {:?}", self.facts.now);
        self.outbox.swap(effects);
        self.facts.now = now;
        self.facts.clock.advance(now);
        self.step(event);
        self.check();
        self.outbox.swap(effects);
    }

    fn step(&mut self, event: Event) {
        let now = self.facts.now;
        // A worker that was suspended beyond its fence learns that before it does anything else.
        self.check_fence();
        let outcome = self.election.tick(now);
        self.on_election_outcome(outcome);
        let scope = self.apply_event(event);
        if self.leave_phase() == Some(ShutdownPhase::Done) {
            self.deadline = None;
            return;
        }
        let is_undue = |at: Option<Time>| at.is_some_and(|at| now < at);
        if scope == EventScope::Nothing && is_undue(self.deadline) {
            return;
        }
        if scope != EventScope::Everything && is_undue(self.next_timer) && self.leave.is_none() {
            self.run_consumer();
            if !self.heartbeats.is_requested && self.map_search.outdated_since.is_none() {
                self.set_deadline();
                return;
            }
        }
        self.run_due();
        self.next_timer = self.compute_deadline();
        self.set_deadline();
    }

    /// Asserts that the parts of the worker fit together.
    fn check(&self) {
        invariant!(self.facts.identity == self.identity.holder(), "the shared facts name the held id");
        if let Some(controller) = &self.controller {
            invariant!(self.facts.identity.is_some(), "a leader holds an id");
            invariant!(self.leave.is_none(), "a leaving worker does not lead");
            invariant!(self.fence.is_open(self.facts.now), "a fenced worker does not lead");
            invariant!(self.facts.config.controller_enabled, "this worker may not lead");
            invariant!(
                controller.map().is_none_or(|(map, _)| map.epoch <= self.election.highest_epoch().next()),
                "a leader knows the epochs of its maps"
            );
        }
        if self.facts.identity.is_none() {
            invariant!(self.assignment.len() == 0, "a worker without an id owns nothing");
        }
        if self.leave.as_ref().is_some_and(Leave::ends_process) {
            invariant!(self.state() == WorkerState::Shutdown, "a leaving process is in SHUTDOWN");
        }
    }

    /// Notes one event. Returns the part of the worker that it can affect.
    fn apply_event(&mut self, event: Event) -> EventScope {
        self.consumer.unreleased().note(&event);
        match event {
            Event::Tick => return EventScope::Partitions,
            Event::Synced => {
                // A watch that starts again changes nothing.
                if !std::mem::replace(&mut self.is_synced, true) {
                    self.facts.watching_since = Some(self.facts.clock.now());
                    self.transition(WorkerState::ClaimingId, "connected");
                }
            }
            Event::Watched { key, entry, retained } => return self.watched(&key, entry, retained),
            Event::Written { request_id, .. } if request_id.purpose == Purpose::Cursor => {
                return self.consume(event);
            }
            Event::Fetched { request_id, .. } if request_id.purpose == Purpose::ReadCursor => {
                return self.consume(event);
            }
            Event::Written { request_id, result } => return self.written(request_id, result),
            Event::Fetched { request_id, result } => self.fetched(request_id, result),
            Event::Partitions(partitions) => self.facts.partitions = Some(partitions),
            Event::Released(version) => {
                if !self.facts.config.consumes_log && self.assignment.mark_released(version) {
                    self.heartbeats.is_requested = true;
                }
            }
            Event::Drained => self.on_drained(),
            Event::Shutdown => self.begin_shutdown(),
            Event::Cursors { request_id, result } if request_id.purpose == Purpose::UnlistedCursors => {
                if let Some(controller) = &mut self.controller {
                    controller.on_unlisted_cursors(request_id, result, &mut self.outbox);
                }
            }
            Event::Subjects { request_id, result } => {
                if let Some(controller) = &mut self.controller {
                    controller.on_subjects(request_id, result, &self.facts, &mut self.outbox);
                }
            }
            Event::Cursors { .. }
            | Event::LogInspected { .. }
            | Event::RecoveryPointRead { .. }
            | Event::LogRead { .. }
            | Event::Processed { .. }
            | Event::DeadLetterStep { .. }
            | Event::WakeUp(_) => return self.consume(event),
        }
        EventScope::Everything
    }

    /// Handles an event of the partitions. A fenced worker ignores it: afterwards it inspects every partition again.
    fn consume(&mut self, event: Event) -> EventScope {
        if self.may_serve() {
            self.consumer.handle_event(event, &self.facts, &mut self.outbox);
        }
        EventScope::Partitions
    }

    /// Whether this worker may serve partitions: it holds an id, knows a map, and is not fenced.
    fn may_serve(&self) -> bool {
        self.facts.identity.is_some() && self.facts.map.is_some() && self.fence.is_open(self.facts.now)
    }

    /// Goes to a state. SHUTDOWN is the last one.
    fn transition(&mut self, to: WorkerState, cause: &'static str) {
        if self.state() != to && self.state() != WorkerState::Shutdown {
            let legal = self.lifecycle.transition(self.facts.now.since_origin(), to, cause);
            legal.unwrap_or_else(|illegal| violated!("{illegal} ({cause})"));
        }
    }
}

#[cfg(test)]
#[path = "worker_test.rs"]
mod tests;
