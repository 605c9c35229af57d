//! One worker: the small machines put together.
//!
//! Every event is noted by the machine it concerns; then one pass over all of them does whatever is due. The pass asks
//! only what is true now, never what just happened, so that it does not matter in which order things arrive.

use std::collections::BTreeSet;
use std::sync::Arc;

use phalanx_fsm::{Fsm, State as _, Transition};

use super::config::Config;
use super::controller::{Controller, Surroundings};
use super::election::{self, Candidate, Election};
use super::fence::{Fence, Stage};
use super::health::{HealthyClock, Mark};
use super::holdings::Holdings;
use super::identity::{self, Identity, Search};
use super::io::{
    Condition, Effect, Event, Purpose, ReadError, Ticket, Tickets, Warning, WriteError, Written,
};
use super::roster::Roster;
use super::shutdown::Leaving;
use super::types::{
    AssignmentMap, ClusterState, Entry, Heartbeat, Holder, Key, Partitions, Pod, Revision, Time, Value,
    Version, WorkerId,
};
use super::{Guard, WorkerState, fleet_size};

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
            partitions: $worker.partitions.as_deref(),
            commanded_size: $worker.commanded_size,
            last_state: $worker.last_state.as_ref(),
            watched: $worker.watching_since.map_or(Time::ZERO, |since| $worker.clock.since(since)),
        }
    };
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
    leaving: Option<Leaving>,
    /// Leaves its id only, because the fleet has become smaller: it stays as a standby or takes a free id.
    retiring: bool,
    synced: bool,
    watching_since: Option<Mark>,
    partitions: Option<Arc<Partitions>>,
    commanded_size: Option<u32>,
    last_state: Option<(ClusterState, Time)>,
    map: Option<(Arc<AssignmentMap>, Revision)>,
    map_read: Option<Ticket>,
    behind_since: Option<Time>,
    next_heartbeat: Time,
    /// A heartbeat is wanted besides the tick.
    heartbeat_now: bool,
    unanswered: BTreeSet<u64>,
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
            heartbeat_now: false,
            unanswered: BTreeSet::new(),
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

    /// The life of the id it holds.
    pub fn holder(&self) -> Option<Holder> {
        self.identity.holder()
    }

    /// Whether it leads.
    pub fn is_leader(&self) -> bool {
        self.controller.is_some()
    }

    /// Whether it has stopped itself.
    pub fn is_fenced(&self, now: Time) -> bool {
        !self.fence.is_open(now)
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

    /// Applies one event and appends what the shell must do. Never blocks, never fails.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Vec<Effect>) {
        self.clock.advance(now);
        self.note(now, event, out);
        if self.leaving != Some(Leaving::Done) {
            self.pass(now, out);
        }
    }

    fn note(&mut self, now: Time, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Tick => {}
            Event::Synced => {
                self.synced = true;
                self.watching_since.get_or_insert(self.clock.mark());
                self.election.begin_watching(&self.clock);
                self.enter(now, WorkerState::ClaimingId, "connected");
            }
            Event::Watched { key, entry, retained } => self.watched(now, &key, entry, retained, out),
            Event::Written { ticket, result } => self.written(now, ticket, result, out),
            Event::Fetched { ticket, result } => self.fetched(now, ticket, result, out),
            Event::Partitions(partitions) => self.partitions = Some(partitions),
            Event::LetGo(version) => self.heartbeat_now |= self.holdings.let_go(version),
            Event::Drained => {
                if self.leaving == Some(Leaving::Draining) {
                    self.leaving = Some(Leaving::AwaitingHeartbeats);
                }
            }
            Event::Shutdown => self.begin_leaving(now, out),
        }
    }

    fn watched(&mut self, now: Time, key: &Key, entry: Option<Entry>, retained: bool, out: &mut Vec<Effect>) {
        match (key, entry) {
            (Key::Claim(id), entry) => {
                let outcome = self.identity.watched(*id, entry.as_ref(), &self.clock, &mut self.tickets, out);
                self.identity_came_to(now, outcome, out);
            }
            (Key::Heartbeat(id), Some(Entry { value: Value::Heartbeat(beat), .. })) => {
                self.heard_own(now, &beat, retained);
                let retained = retained && self.config.keeps(Guard::RetainedIsNoLife);
                self.roster.note(*id, &beat, retained, now, &self.clock);
                self.notice_being_behind(now, &beat);
            }
            (Key::StandbyHeartbeat(pod), entry) => {
                let beat = entry.and_then(|entry| match entry.value {
                    Value::Heartbeat(beat) => Some(beat),
                    _ => None,
                });
                if let Some(beat) = &beat {
                    self.heard_own(now, beat, retained);
                }
                self.roster.note_standby(pod, beat.as_ref(), retained, &self.clock);
            }
            (Key::Lease, entry) => {
                let outcome = self.election.watched(entry.as_ref(), &self.clock);
                self.election_came_to(now, outcome, out);
            }
            (Key::Map, Some(Entry { value: Value::Map(map), revision, .. })) => {
                self.see_map(map, revision, out)
            }
            (Key::ClusterState, Some(Entry { value: Value::ClusterState(state), .. })) => {
                if let Some(controller) = &mut self.controller {
                    controller.saw_state(&state);
                }
                // A late write of an earlier word is no news.
                let newest = self.last_state.as_ref().map(|(known, _)| (known.epoch, known.serial));
                if newest.is_none_or(|newest| (state.epoch, state.serial) > newest) {
                    self.last_state = Some((state, now));
                }
            }
            (Key::FleetSize, entry) => {
                self.commanded_size = entry.and_then(|entry| match entry.value {
                    Value::FleetSize(size) => Some(size),
                    _ => None,
                });
            }
            // A heartbeat that expired says nothing that silence did not; a lost map is not an empty one.
            _ => {}
        }
    }

    /// Our own heartbeat has come back through the watch: the broker works.
    fn heard_own(&mut self, now: Time, beat: &Heartbeat, retained: bool) {
        if !retained
            && beat.pod == self.pod
            && let Some(sent) = self.fence.sent_at(beat.serial)
        {
            self.clock.echoed(now, sent);
        }
    }

    fn notice_being_behind(&mut self, now: Time, beat: &Heartbeat) {
        let known = self.map.as_ref().map_or(Version(0), |(map, _)| map.version);
        if beat.is_leader && beat.map_version > known {
            self.behind_since.get_or_insert(now);
        }
    }

    fn see_map(&mut self, map: Arc<AssignmentMap>, revision: Revision, out: &mut Vec<Effect>) {
        self.election.note_epoch(map.epoch);
        if self.map.as_ref().is_some_and(|(_, known)| *known >= revision) {
            return;
        }
        self.behind_since = None;
        self.map = Some((map, revision));
        self.follow_map(out);
    }

    fn follow_map(&mut self, out: &mut Vec<Effect>) {
        if let (Some(holder), Some((map, _))) = (self.identity.holder(), &self.map) {
            let before = self.holdings.applied();
            self.holdings.follow(holder.id, map, out);
            self.heartbeat_now |= self.holdings.applied() != before;
        }
    }

    fn written(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: Result<Written, WriteError>,
        out: &mut Vec<Effect>,
    ) {
        match ticket.purpose {
            Purpose::Heartbeat => {
                self.unanswered.remove(&ticket.serial);
                if result.is_ok() {
                    self.fence.heartbeat_acknowledged(now, ticket.serial);
                }
            }
            Purpose::Claim | Purpose::Renew => {
                let outcome = self.identity.written(ticket, result, &mut self.tickets, out);
                self.identity_came_to(now, outcome, out);
            }
            Purpose::Lease => {
                let outcome =
                    self.election.written(now, ticket, result, &self.config, &mut self.tickets, out);
                self.election_came_to(now, outcome, out);
            }
            Purpose::TouchMap | Purpose::PublishMap => {
                self.with_controller(now, out, |controller, around, tickets, out| {
                    controller.written(ticket, result, around, tickets, out);
                });
            }
            Purpose::Farewell => self.left_behind(Leaving::Farewell(ticket), Leaving::AwaitingLease),
            Purpose::Resign => self.left_behind(Leaving::Resigning(ticket), Leaving::AwaitingRenewal),
            Purpose::Release if self.retiring => self.retired(now, ticket),
            Purpose::Release => self.left_behind(Leaving::Releasing(ticket), Leaving::Done),
            _ => {}
        }
        if self.leaving == Some(Leaving::Done) {
            out.push(Effect::Exit);
        }
    }

    fn left_behind(&mut self, stage: Leaving, next: Leaving) {
        if self.leaving == Some(stage) {
            self.leaving = Some(next);
        }
    }

    fn fetched(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: Result<Option<Entry>, ReadError>,
        out: &mut Vec<Effect>,
    ) {
        match ticket.purpose {
            Purpose::ReadClaim => {
                let outcome = self.identity.fetched(ticket, result, &self.clock, &mut self.tickets, out);
                self.identity_came_to(now, outcome, out);
            }
            Purpose::ReadLease => {
                let outcome = self.election.fetched(now, ticket, result, &self.config, &self.clock);
                self.election_came_to(now, outcome, out);
            }
            Purpose::ReadMap if self.map_read == Some(ticket) => {
                self.map_read = None;
                if let Ok(entry) = result {
                    if let Some(Entry { value: Value::Map(map), revision, .. }) = entry {
                        self.see_map(map, revision, out);
                    }
                    if self.fence.map_read(now) {
                        out.push(Effect::Unfence);
                        self.leave_degraded(now);
                    }
                }
            }
            _ => {
                let mut found = None;
                self.with_controller(now, out, |controller, around, tickets, out| {
                    found = controller.fetched(ticket, result, around, tickets, out);
                });
                if let Some((id, Entry { value: Value::Heartbeat(beat), .. })) = found {
                    self.note_read_heartbeat(now, id, &beat);
                }
            }
        }
    }

    /// A suspect's heartbeat, read from the stream leader: if it is newer than what the watch brought, it lives.
    fn note_read_heartbeat(&mut self, now: Time, id: WorkerId, beat: &Heartbeat) {
        let newer = match (self.roster.get(id), beat.holder) {
            (Some(seen), Some(holder)) => {
                (holder.incarnation, beat.serial) > (seen.incarnation, seen.serial) || beat.left && !seen.left
            }
            // Never heard: a value that lies there is no sign of life.
            _ => false,
        };
        if newer {
            self.roster.note(id, beat, false, now, &self.clock);
        }
    }

    fn identity_came_to(&mut self, now: Time, outcome: identity::Outcome, out: &mut Vec<Effect>) {
        match outcome {
            identity::Outcome::Claimed(_) => {
                self.enter(now, WorkerState::Election, "id claimed");
                if !self.fence.is_open(now) {
                    self.enter(now, WorkerState::Degraded, "no heartbeat was acknowledged");
                }
                self.heartbeat_now = true;
                self.follow_map(out);
            }
            identity::Outcome::Renewed => {
                if !self.config.keeps(Guard::HeartbeatAlone) {
                    self.fence.prove(now);
                }
                if matches!(self.fence.stage(), Stage::AwaitingClaim { .. }) {
                    self.fence.claim_renewed();
                }
            }
            identity::Outcome::Lost(id) => {
                out.push(Effect::Warn(Warning::IdentityLost { id: id.0 }));
                self.controller = None;
                self.election.forsake();
                self.holdings.clear(out);
                if std::mem::take(&mut self.retiring) {
                    self.leaving = None;
                }
                self.enter(now, WorkerState::ClaimingId, "identity lost");
            }
            identity::Outcome::Nothing | identity::Outcome::LookOn => {}
        }
    }

    fn election_came_to(&mut self, now: Time, outcome: election::Outcome, out: &mut Vec<Effect>) {
        match outcome {
            election::Outcome::Won(epoch) => {
                if self.leaving.is_some() || !self.fence.is_open(now) {
                    return;
                }
                if !self.config.keeps(Guard::OwnTimers) {
                    self.roster.forget_timers(&self.clock);
                }
                let around = surroundings!(self, now);
                self.controller = Some(Controller::new(epoch, &around, &mut self.tickets, out));
                self.heartbeat_now = true;
            }
            election::Outcome::Lost => {
                self.controller = None;
                self.heartbeat_now = true;
            }
            election::Outcome::Nothing => {}
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

    /// Does whatever is due.
    fn pass(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.mind_the_fence(now, out);
        if self.leaving.is_some() {
            self.leave(out);
        } else if self.synced {
            self.look_for_an_id(now, out);
            self.lead(now, out);
            self.retire_if_surplus(now, out);
        }
        self.catch_up(now, out);
        self.show_state(now);
        self.beat(now, out);
    }

    fn mind_the_fence(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.identity.holder().is_none() {
            return;
        }
        if self.fence.tick(now) {
            out.push(Effect::Fence);
            self.controller = None;
            self.election.forsake();
            self.enter(now, WorkerState::Degraded, "no heartbeat was acknowledged");
            self.heartbeat_now = true;
        }
        match self.fence.stage() {
            Stage::AwaitingClaim { .. } => self.identity.renew(&mut self.tickets, out),
            Stage::AwaitingMap { .. } if self.map_read.is_none() => self.read_map(out),
            _ => {}
        }
    }

    fn look_for_an_id(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.identity.holder().is_some() || self.identity.is_busy() {
            return;
        }
        if self.state() == WorkerState::Initialization {
            if now < self.next_heartbeat {
                return;
            }
            self.enter(now, WorkerState::ClaimingId, "trying again");
        }
        let map = self.map.as_ref().map(|(map, _)| map.as_ref());
        let size = fleet_size::in_force(self.commanded_size, &self.config, &self.roster, &self.clock, map);
        let nobody = BTreeSet::new();
        let search = Search {
            in_map: map.map_or(&nobody, |map| &map.workers),
            limit: size.unwrap_or(self.config.max_workers).min(self.config.max_workers),
            stale: self.config.claim_stale,
            map_first: self.config.keeps(Guard::MapIdsFirst),
            clock: &self.clock,
        };
        let (limit, found) = (search.limit, self.identity.search(&search, &mut self.tickets, out));
        if !found && size.is_none() {
            out.push(Effect::Warn(Warning::PoolExhausted { ids: limit }));
            self.enter(now, WorkerState::Initialization, "every id is taken");
        }
    }

    fn lead(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(me) = self.identity.holder() else { return };
        if !self.fence.is_open(now) {
            return;
        }
        let candidate = Candidate { me, config: &self.config, roster: &self.roster, clock: &self.clock };
        self.election.campaign(now, &candidate, &mut self.tickets, out);
        self.with_controller(now, out, |controller, around, tickets, out| {
            controller.evaluate(around, tickets, out)
        });
    }

    /// The leader has a newer map than we do, and the watch has not brought it for a second: read it.
    fn catch_up(&mut self, now: Time, out: &mut Vec<Effect>) {
        let overdue = self.behind_since.is_some_and(|since| now.saturating_sub(since) >= Time::from_secs(1));
        if overdue && self.map_read.is_none() {
            self.behind_since = None;
            self.read_map(out);
        }
    }

    fn read_map(&mut self, out: &mut Vec<Effect>) {
        let ticket = self.tickets.next(Purpose::ReadMap);
        out.push(Effect::Read { ticket, key: Key::Map });
        self.map_read = Some(ticket);
    }

    /// Before the first assignment the state is the role; afterwards it is what the leader says the cluster is doing.
    fn show_state(&mut self, now: Time) {
        let Some(me) = self.identity.holder() else { return };
        let state = self.state();
        if self.leaving.is_some() || state == WorkerState::Degraded {
            return;
        }
        let role = if self.is_leader() { WorkerState::Leader } else { WorkerState::Follower };
        let elected = self.is_leader() || self.election.leader().is_some_and(|leader| leader != me);
        if matches!(state, WorkerState::Election | WorkerState::Leader | WorkerState::Follower) {
            if !elected {
                return;
            }
            self.enter(now, role, if self.is_leader() { "won the election" } else { "another leads" });
            let named = self.map.as_ref().is_some_and(|(map, _)| map.workers.contains(&me.id));
            if named {
                self.enter(now, WorkerState::Stable, "has an assignment");
            }
            return;
        }
        let shown = match &self.controller {
            Some(controller) => controller.state(),
            None => self.last_state.as_ref().map_or(WorkerState::Stable, |(state, _)| state.state),
        };
        if shown != state && !state.may_go_to(shown) {
            self.enter(now, WorkerState::Stable, "between two states of the leader");
        }
        self.enter(now, shown, "as the leader says");
    }

    fn leave_degraded(&mut self, now: Time) {
        let Some(me) = self.identity.holder().filter(|_| self.state() == WorkerState::Degraded) else {
            return;
        };
        let named = self.map.as_ref().is_some_and(|(map, _)| map.workers.contains(&me.id));
        let to = if named { WorkerState::Stable } else { WorkerState::Election };
        self.enter(now, to, "proved itself again");
        self.heartbeat_now = true;
    }

    fn beat(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_due = now >= self.next_heartbeat;
        let silent = !self.synced || matches!(self.leaving, Some(stage) if stage != Leaving::Draining);
        if silent || !(is_due || self.heartbeat_now) {
            return;
        }
        self.heartbeat_now = false;
        let ticket = self.tickets.next(Purpose::Heartbeat);
        self.fence.heartbeat_sent(now, ticket.serial);
        self.unanswered.insert(ticket.serial);
        out.push(self.heartbeat(ticket, false));
        if is_due {
            self.next_heartbeat = now + self.config.heartbeat_interval;
            self.identity.renew(&mut self.tickets, out);
        }
    }

    fn heartbeat(&self, ticket: Ticket, left: bool) -> Effect {
        let holder = self.identity.holder();
        let key =
            holder.map_or(Key::StandbyHeartbeat(self.pod.uid.clone()), |holder| Key::Heartbeat(holder.id));
        let value = Value::Heartbeat(Heartbeat {
            pod: self.pod.clone(),
            holder,
            serial: ticket.serial,
            state: self.state(),
            left,
            is_leader: self.is_leader(),
            map_version: self.map.as_ref().map_or(Version(0), |(map, _)| map.version),
            applied_version: self.holdings.applied(),
            fleet_size: self.config.fleet_size,
        });
        Effect::Write { ticket, key, value, condition: Condition::None }
    }

    fn begin_leaving(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.leaving.is_some() && !self.retiring {
            return;
        }
        self.leaving = Some(Leaving::Draining);
        self.retiring = false;
        // A leader that is leaving publishes nothing.
        self.controller = None;
        self.enter(now, WorkerState::Shutdown, "told to leave");
        self.heartbeat_now = true;
        out.push(Effect::Drain);
    }

    /// The fleet has become smaller than our id, and everything is let go of: give the id back in the order of leaving,
    /// and look for another.
    fn retire_if_surplus(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(me) = self.identity.holder().filter(|_| self.fence.is_open(now)) else { return };
        let Some((map, _)) = &self.map else { return };
        let size =
            fleet_size::in_force(self.commanded_size, &self.config, &self.roster, &self.clock, Some(map));
        let beyond = size.is_some_and(|size| me.id.0 >= size) && map.fleet_size == size;
        let surplus = beyond && !map.workers.contains(&me.id);
        if surplus && self.holdings.len() == 0 && self.holdings.applied() >= map.version {
            self.retiring = true;
            self.controller = None;
            self.leaving = Some(Leaving::AwaitingHeartbeats);
            self.leave(out);
        }
    }

    fn retired(&mut self, now: Time, ticket: Ticket) {
        if self.leaving == Some(Leaving::Releasing(ticket)) {
            self.identity.released();
            self.leaving = None;
            self.retiring = false;
            self.holdings = Holdings::default();
            self.enter(now, WorkerState::ClaimingId, "the fleet is smaller now");
            self.heartbeat_now = true;
        }
    }

    fn leave(&mut self, out: &mut Vec<Effect>) {
        if self.leaving == Some(Leaving::AwaitingHeartbeats) && self.unanswered.is_empty() {
            let ticket = self.tickets.next(Purpose::Farewell);
            out.push(self.heartbeat(ticket, true));
            self.leaving = Some(Leaving::Farewell(ticket));
        }
        if self.leaving == Some(Leaving::AwaitingLease) && !self.election.is_busy() {
            let resigning = self.election.resign(&mut self.tickets, out);
            self.leaving = Some(resigning.map_or(Leaving::AwaitingRenewal, Leaving::Resigning));
        }
        if self.leaving == Some(Leaving::AwaitingRenewal) && !self.identity.is_busy() {
            let releasing = self.identity.release(&mut self.tickets, out);
            self.leaving = Some(releasing.map_or(Leaving::Done, Leaving::Releasing));
            if releasing.is_none() {
                out.push(Effect::Exit);
            }
        }
    }

    /// Goes to a state, unless the worker is leaving: that is the last one.
    fn enter(&mut self, now: Time, to: WorkerState, cause: &'static str) {
        if self.state() != to && self.state() != WorkerState::Shutdown {
            let legal = self.lifecycle.go(now, to, cause);
            debug_assert!(legal.is_ok(), "{legal:?} ({cause})");
        }
    }

    /// When the worker must be called again, whatever happens.
    pub fn next_deadline(&self, now: Time) -> Option<Time> {
        if self.leaving == Some(Leaving::Done) || !self.synced {
            return None;
        }
        let holds = self.identity.holder().is_some();
        let fence = self.fence.closes_at().filter(|_| holds).map(|closes| closes + MOMENT);
        let behind = self.behind_since.map(|since| since + Time::from_secs(1));
        let controller = self
            .controller
            .as_ref()
            .and_then(|controller| controller.next_deadline(&surroundings!(self, now)));
        let due = [
            Some(self.next_heartbeat),
            fence,
            behind,
            self.election.renew_at(),
            controller,
            self.next_silence(now),
            self.next_patience(now),
        ];
        due.into_iter().flatten().min().map(|due| due.max(now + MOMENT))
    }

    /// When somebody whose silence matters will have been silent for too long, if nothing is heard until then.
    fn next_silence(&self, now: Time) -> Option<Time> {
        let until = |id: WorkerId| {
            let silent = self.roster.silence(id, &self.clock)?;
            self.config
                .crash_after()
                .checked_sub(silent)
                .filter(|left| !left.is_zero())
                .map(|left| now + left)
        };
        let leader = self.election.leader().map(|leader| leader.id);
        let fleet =
            self.controller.as_ref().and(self.map.as_ref()).map(|(map, _)| map.workers.iter().copied());
        leader.into_iter().chain(fleet.into_iter().flatten()).filter_map(until).min()
    }

    /// When this process will have watched for long enough to draw conclusions.
    fn next_patience(&self, now: Time) -> Option<Time> {
        let watched = self.clock.since(self.watching_since?);
        let patience =
            [self.config.cold_start_window, self.config.crash_after() + self.config.heartbeat_interval];
        patience
            .into_iter()
            .filter_map(|limit| limit.checked_sub(watched))
            .filter(|left| !left.is_zero())
            .map(|left| now + left)
            .min()
    }
}
