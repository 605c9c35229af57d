//! One worker: the small machines put together.
//!
//! Every event is noted by the machine it concerns; then one pass over all of them does whatever is due. The pass asks
//! only what is true now, never what just happened, so that it does not matter in which order things arrive.

use std::collections::BTreeSet;
use std::sync::Arc;

use phalanx_fsm::{Fsm, Transition};

use super::WorkerState;
use super::config::Config;
use super::consumption::{Consumption, Ground};
use super::controller::{Controller, Surroundings};
use super::election::Election;
use super::fence::Fence;
use super::health::{HealthyClock, Mark};
use super::holdings::Holdings;
use super::identity::Identity;
use super::io::{Effect, Event, Purpose, Ticket, Tickets};
use super::roster::Roster;
use super::shutdown::Leaving;
use super::types::{AssignmentMap, ClusterState, Holder, Partitions, Pod, Revision, Time, Version};

/// The least time between two passes: what is due now is done now.
const MOMENT: Time = Time::from_millis(1);

/// What the controller may look at; a macro, because the controller and the tickets are borrowed beside it.
macro_rules! surroundings {
    ($worker:ident, $now:expr) => {
        Surroundings {
            now: $now,
            config: &$worker.config,
            roster: &$worker.roster,
            clock: &$worker.clock,
            partitions: $worker.partitions.as_ref(),
            commanded_size: $worker.commanded_size,
            last_state: $worker.last_state.as_ref(),
            known_map: $worker.map.as_ref().map(|(map, _)| map),
            watched: $worker.watching_since.map_or(Time::ZERO, |since| $worker.clock.since(since)),
        }
    };
}

/// What consumption may look at; a macro, because consumption and the tickets are borrowed beside it.
macro_rules! ground {
    ($worker:ident, $now:expr, $me:expr, $map:expr) => {
        Ground {
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

mod duties;
mod hearing;
mod leaving;

/// What can follow from an event: most say nothing new, and many concern one partition only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Nothing,
    Partitions,
    Everything,
}

/// The deciding part of one worker: events in, effects out.
#[derive(Debug)]
pub struct Worker {
    config: Config,
    pod: Pod,
    lifecycle: Fsm<WorkerState>,
    tickets: Tickets,
    clock: HealthyClock,
    fence: Fence,
    identity: Identity,
    roster: Roster,
    election: Election,
    controller: Option<Controller>,
    holdings: Holdings,
    consumption: Consumption,
    /// The newest time of the broker that was seen.
    broker_time: u64,
    leaving: Option<Leaving>,
    /// Leaves its id only, because the fleet has become smaller: it stays as a standby or takes a free id.
    retiring: bool,
    synced: bool,
    watching_since: Option<Mark>,
    partitions: Option<Arc<Partitions>>,
    commanded_size: Option<u32>,
    last_state: Option<(Arc<ClusterState>, Time)>,
    map: Option<(Arc<AssignmentMap>, Revision)>,
    map_read: Option<Ticket>,
    behind_since: Option<Time>,
    next_heartbeat: Time,
    next_renewal: Time,
    /// On the way out of the fence only answers to later requests count.
    fence_floor: u64,
    /// A heartbeat is wanted besides the tick.
    heartbeat_now: bool,
    unanswered: BTreeSet<u64>,
    /// The shell has drained what it runs.
    drained: bool,
    drain_until: Time,
    /// When something besides the partitions is due.
    duties_at: Option<Time>,
    /// When the worker must be called again.
    deadline: Option<Time>,
}

impl Worker {
    /// A process that has just started.
    pub fn new(now: Time, pod: Pod, config: Config) -> Self {
        Self {
            clock: HealthyClock::new(now, &config),
            fence: Fence::new(now, &config),
            identity: Identity::new(pod.clone()),
            roster: Roster::default(),
            election: Election::new(),
            controller: None,
            holdings: Holdings::default(),
            consumption: Consumption::default(),
            broker_time: 0,
            leaving: None,
            retiring: false,
            synced: false,
            watching_since: None,
            partitions: None,
            commanded_size: None,
            last_state: None,
            map: None,
            map_read: None,
            behind_since: None,
            next_heartbeat: now,
            next_renewal: now,
            fence_floor: 0,
            heartbeat_now: false,
            unanswered: BTreeSet::new(),
            drained: false,
            drain_until: Time::MAX,
            duties_at: None,
            deadline: None,
            lifecycle: Fsm::new(now),
            tickets: Tickets::default(),
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
    pub fn holder(&self) -> Option<Holder> {
        let gives_back = matches!(self.leaving, Some(Leaving::Releasing(_) | Leaving::Done));
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
        self.holdings.applied()
    }

    /// The newest map it knows.
    pub fn map(&self) -> Option<&Arc<AssignmentMap>> {
        self.map.as_ref().map(|(map, _)| map)
    }

    /// How many partitions it owns.
    pub fn owned(&self) -> usize {
        self.holdings.len()
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
        self.mind_the_fence(now, out);
        let outcome = self.election.tick(now);
        self.election_came_to(now, outcome, out);
        let scope = self.note(now, event, out);
        if self.leaving == Some(Leaving::Done) {
            self.deadline = None;
            return;
        }
        let undue = |at: Option<Time>| at.is_some_and(|at| now < at);
        if scope == Scope::Nothing && undue(self.deadline) {
            return;
        }
        if scope != Scope::Everything && undue(self.duties_at) && self.leaving.is_none() {
            self.consume_what_is_due(now, out);
            if !self.heartbeat_now && self.behind_since.is_none() {
                self.set_deadline(now);
                return;
            }
        }
        self.pass(now, out);
        self.duties_at = self.compute_deadline(now);
        self.set_deadline(now);
    }

    /// Notes one event. Says what can follow from it.
    fn note(&mut self, now: Time, event: Event, out: &mut Vec<Effect>) -> Scope {
        self.consumption.unreleased().note(&event);
        match event {
            Event::Tick => return Scope::Partitions,
            Event::Synced => {
                // A watch that begins anew changes nothing.
                if !std::mem::replace(&mut self.synced, true) {
                    self.watching_since.get_or_insert(self.clock.mark());
                    self.election.begin_watching(&self.clock);
                    self.enter(now, WorkerState::ClaimingId, "connected");
                }
            }
            Event::Watched { key, entry, retained } => return self.watched(now, &key, entry, retained, out),
            Event::Written { ticket, result } if ticket.purpose == Purpose::Cursor => {
                self.consume(now, Event::Written { ticket, result }, out);
                return Scope::Partitions;
            }
            Event::Written { ticket, result } => return self.written(now, ticket, result, out),
            Event::Fetched { ticket, result } if ticket.purpose == Purpose::ReadCursor => {
                self.consume(now, Event::Fetched { ticket, result }, out);
                return Scope::Partitions;
            }
            Event::Fetched { ticket, result } => self.fetched(now, ticket, result, out),
            Event::Partitions(partitions) => self.partitions = Some(partitions),
            Event::LetGo(version) => {
                if !self.config.log {
                    self.heartbeat_now |= self.holdings.let_go(version);
                }
            }
            Event::Drained => self.drained = true,
            Event::Shutdown => self.begin_leaving(now, out),
            Event::Cursors { ticket, result } if ticket.purpose == Purpose::StrangerCursors => {
                self.with_controller(now, out, |controller, _, _, out| {
                    controller.stranger_cursors(ticket, result, out);
                });
            }
            Event::Subjects { ticket, result } => {
                self.with_controller(now, out, |controller, around, tickets, out| {
                    controller.subjects(ticket, result, around, tickets, out);
                });
            }
            event => {
                self.consume(now, event, out);
                return Scope::Partitions;
            }
        }
        Scope::Everything
    }

    /// What concerns the partitions we own. Behind a closed fence nothing does.
    fn consume(&mut self, now: Time, event: Event, out: &mut Vec<Effect>) {
        if let (Some(me), Some((map, _)), true) = (self.identity.holder(), &self.map, self.fence.is_open(now))
        {
            let ground = ground!(self, now, me, map);
            self.consumption.note(event, &ground, &mut self.tickets, out);
        }
    }

    fn with_controller(
        &mut self,
        now: Time,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Controller, &Surroundings<'_>, &mut Tickets, &mut Vec<Effect>),
    ) {
        if let Some(mut controller) = self.controller.take() {
            act(&mut controller, &surroundings!(self, now), &mut self.tickets, out);
            self.controller = Some(controller);
        }
    }

    /// Goes to a state, unless the worker is leaving: that is the last one.
    fn enter(&mut self, now: Time, to: WorkerState, cause: &'static str) {
        if self.state() != to && self.state() != WorkerState::Shutdown {
            let legal = self.lifecycle.go(now, to, cause);
            debug_assert!(legal.is_ok(), "{legal:?} ({cause})");
        }
    }
}
