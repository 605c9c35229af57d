//! One worker: the small machines put together.
//!
//! Every event is noted by the machine it concerns; then one pass over all of them does whatever is due. The pass asks
//! only what is true now, never what just happened, so that it does not matter in which order things arrive.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use phalanx_fsm::{Fsm, Transition};

use super::WorkerState;
use super::assignment::OwnAssignment;
use super::config::Config;
use super::consumer::{Consumer, ConsumerContext};
use super::controller::{Controller, ControllerContext};
use super::election::Election;
use super::fence::Fence;
use super::health::{HealthyClock, HealthyInstant};
use super::identity::Identity;
use super::io::{Effect, Event, Purpose, RequestId, RequestIds};
use super::roster::Roster;
use super::shutdown::ShutdownPhase;
use super::types::{
    AssignmentMap, ClusterState, PartitionList, Pod, Revision, Time, Version, WorkerIncarnation,
};

/// The least time between two passes: what is due now is done now.
const MIN_PASS_INTERVAL: Duration = Duration::from_millis(1);

/// Builds the inputs of the controller. A macro, because the caller also borrows the controller and the request ids.
macro_rules! controller_context {
    ($worker:ident, $now:expr) => {
        ControllerContext {
            now: $now,
            config: &$worker.config,
            roster: &$worker.roster,
            clock: &$worker.clock,
            partitions: $worker.partitions.as_ref(),
            commanded_size: $worker.commanded_size,
            last_state: $worker.last_state.as_ref(),
            known_map: $worker.map.as_ref().map(|(map, _)| map),
            watched: $worker.watching_since.map(|since| $worker.clock.since(since)).unwrap_or_default(),
        }
    };
}

/// Builds the inputs of the consumer. A macro, because the caller also borrows the consumer and the request ids.
macro_rules! consumer_context {
    ($worker:ident, $now:expr, $me:expr, $map:expr) => {
        ConsumerContext {
            now: $now,
            config: &$worker.config,
            me: $me,
            map: $map,
            roster: &$worker.roster,
            clock: &$worker.clock,
            broker_time: $worker.broker_time,
        }
    };
}

mod inputs;
mod leave;
mod timers;

/// What can follow from an event: most say nothing new, and many concern one partition only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventScope {
    Nothing,
    Partitions,
    Everything,
}

/// The deciding part of one worker: events in, effects out.
#[derive(Debug)]
pub struct WorkerCore {
    config: Config,
    pod: Pod,
    lifecycle: Fsm<WorkerState>,
    request_ids: RequestIds,
    clock: HealthyClock,
    fence: Fence,
    identity: Identity,
    roster: Roster,
    election: Election,
    controller: Option<Controller>,
    assignment: OwnAssignment,
    consumption: Consumer,
    /// The newest time of the broker that was seen.
    broker_time: u64,
    leaving: Option<ShutdownPhase>,
    /// Leaves its id only, because the fleet has become smaller: it stays as a standby or takes a free id.
    releasing_surplus_id: bool,
    synced: bool,
    watching_since: Option<HealthyInstant>,
    partitions: Option<Arc<PartitionList>>,
    commanded_size: Option<u32>,
    last_state: Option<(Arc<ClusterState>, Time)>,
    map: Option<(Arc<AssignmentMap>, Revision)>,
    map_read: Option<RequestId>,
    map_outdated_since: Option<Time>,
    next_heartbeat: Time,
    next_renewal: Time,
    /// On the way out of the fence only answers to later requests count.
    fence_min_request: u64,
    /// A heartbeat is wanted besides the tick.
    heartbeat_due: bool,
    unanswered: BTreeSet<u64>,
    /// The shell has drained what it runs.
    drained: bool,
    drain_until: Time,
    /// When something besides the partitions is due.
    next_timer: Option<Time>,
    /// When the worker must be called again.
    deadline: Option<Time>,
}

impl WorkerCore {
    /// A process that has just started.
    pub fn new(now: Time, pod: Pod, config: Config) -> Self {
        Self {
            clock: HealthyClock::new(now, &config),
            fence: Fence::new(now, &config),
            identity: Identity::new(pod.clone()),
            roster: Roster::default(),
            election: Election::new(),
            controller: None,
            assignment: OwnAssignment::default(),
            consumption: Consumer::default(),
            broker_time: 0,
            leaving: None,
            releasing_surplus_id: false,
            synced: false,
            watching_since: None,
            partitions: None,
            commanded_size: None,
            last_state: None,
            map: None,
            map_read: None,
            map_outdated_since: None,
            next_heartbeat: now,
            next_renewal: now,
            fence_min_request: 0,
            heartbeat_due: false,
            unanswered: BTreeSet::new(),
            drained: false,
            drain_until: Time::MAX,
            next_timer: None,
            deadline: None,
            lifecycle: Fsm::new(now.since_origin()),
            request_ids: RequestIds::default(),
            config,
            pod,
        }
    }

    /// What the worker is doing.
    pub fn state(&self) -> WorkerState {
        self.lifecycle.state()
    }

    /// How it came to do that: the latest transitions.
    pub fn history(&self) -> impl ExactSizeIterator<Item = &Transition<WorkerState>> {
        self.lifecycle.history()
    }

    /// The life of the id it holds. One that it has begun to give back is held no more.
    pub fn incarnation(&self) -> Option<WorkerIncarnation> {
        let gives_back = matches!(self.leaving, Some(ShutdownPhase::Releasing(_) | ShutdownPhase::Done));
        self.identity.holder().filter(|_| !gives_back)
    }

    /// Whether it leads.
    pub fn is_leader(&self) -> bool {
        self.controller.is_some()
    }

    /// How many changes of the fleet wait for the end of a window; a leader knows.
    pub fn pending_changes(&self) -> usize {
        self.controller.as_ref().map_or(0, Controller::pending)
    }

    /// Whether it has stopped itself.
    pub fn is_fenced(&self, now: Time) -> bool {
        !self.fence.is_open(now)
    }

    /// Until when it may work if nothing is heard; none if it has stopped itself.
    pub fn unfenced_until(&self) -> Option<Time> {
        self.fence.closes_at()
    }

    /// The newest map whose losses it has fully let go of.
    pub fn applied_version(&self) -> Version {
        self.assignment.applied()
    }

    /// The newest map it knows.
    pub fn map(&self) -> Option<&Arc<AssignmentMap>> {
        self.map.as_ref().map(|(map, _)| map)
    }

    /// How many partitions it owns.
    pub fn owned(&self) -> usize {
        self.assignment.len()
    }

    /// Whether it waits for an id that is not there for it: a standby.
    pub fn is_standby(&self) -> bool {
        self.state() == WorkerState::ClaimingId && self.synced && !self.identity.is_busy()
    }

    /// When the worker must be called again, whatever happens.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Applies one event and appends what the shell must do. Never blocks, never fails.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Vec<Effect>) {
        self.clock.advance(now);
        // Whatever the event says: a worker that has slept through its fence does nothing before it knows that.
        self.check_fence(now, out);
        let outcome = self.election.tick(now);
        self.on_election_outcome(now, outcome, out);
        let scope = self.apply_event(now, event, out);
        if self.leaving == Some(ShutdownPhase::Done) {
            self.deadline = None;
            return;
        }
        let undue = |at: Option<Time>| at.is_some_and(|at| now < at);
        if scope == EventScope::Nothing && undue(self.deadline) {
            return;
        }
        if scope != EventScope::Everything && undue(self.next_timer) && self.leaving.is_none() {
            self.run_consumer(now, out);
            if !self.heartbeat_due && self.map_outdated_since.is_none() {
                self.set_deadline(now);
                return;
            }
        }
        self.run_due(now, out);
        self.next_timer = self.compute_deadline(now);
        self.set_deadline(now);
    }

    /// Notes one event. Says what can follow from it.
    fn apply_event(&mut self, now: Time, event: Event, out: &mut Vec<Effect>) -> EventScope {
        self.consumption.unreleased().note(&event);
        match event {
            Event::Tick => return EventScope::Partitions,
            Event::Synced => {
                // A watch that begins anew changes nothing.
                if !std::mem::replace(&mut self.synced, true) {
                    self.watching_since.get_or_insert(self.clock.now());
                    self.election.begin_watching(&self.clock);
                    self.transition(now, WorkerState::ClaimingId, "connected");
                }
            }
            Event::Watched { key, entry, retained } => return self.watched(now, &key, entry, retained, out),
            Event::Written { request_id, result } if request_id.purpose == Purpose::Cursor => {
                self.consume(now, Event::Written { request_id, result }, out);
                return EventScope::Partitions;
            }
            Event::Written { request_id, result } => return self.written(now, request_id, result, out),
            Event::Fetched { request_id, result } if request_id.purpose == Purpose::ReadCursor => {
                self.consume(now, Event::Fetched { request_id, result }, out);
                return EventScope::Partitions;
            }
            Event::Fetched { request_id, result } => self.fetched(now, request_id, result, out),
            Event::Partitions(partitions) => self.partitions = Some(partitions),
            Event::Released(version) => {
                if !self.config.consumes_log {
                    self.heartbeat_due |= self.assignment.mark_released(version);
                }
            }
            Event::Drained => self.drained = true,
            Event::Shutdown => self.begin_shutdown(now, out),
            Event::Cursors { request_id, result } if request_id.purpose == Purpose::UnlistedCursors => {
                self.with_controller(now, out, |controller, _, _, out| {
                    controller.on_unlisted_cursors(request_id, result, out);
                });
            }
            Event::Subjects { request_id, result } => {
                self.with_controller(now, out, |controller, context, request_ids, out| {
                    controller.subjects(request_id, result, context, request_ids, out);
                });
            }
            event => {
                self.consume(now, event, out);
                return EventScope::Partitions;
            }
        }
        EventScope::Everything
    }

    /// What concerns the partitions we own. Behind a closed fence nothing does.
    fn consume(&mut self, now: Time, event: Event, out: &mut Vec<Effect>) {
        if let (Some(me), Some((map, _)), true) = (self.identity.holder(), &self.map, self.fence.is_open(now))
        {
            let context = consumer_context!(self, now, me, map);
            self.consumption.handle_event(event, &context, &mut self.request_ids, out);
        }
    }

    fn with_controller(
        &mut self,
        now: Time,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Controller, &ControllerContext<'_>, &mut RequestIds, &mut Vec<Effect>),
    ) {
        if let Some(mut controller) = self.controller.take() {
            act(&mut controller, &controller_context!(self, now), &mut self.request_ids, out);
            self.controller = Some(controller);
        }
    }

    /// Goes to a state, unless the worker is leaving: that is the last one.
    fn transition(&mut self, now: Time, to: WorkerState, cause: &'static str) {
        if self.state() != to && self.state() != WorkerState::Shutdown {
            let legal = self.lifecycle.transition(now.since_origin(), to, cause);
            debug_assert!(legal.is_ok(), "{legal:?} ({cause})");
        }
    }
}
