//! The leader's calculator: from what it sees of the fleet to the maps it publishes.
//!
//! A new leader reads the map, inherits what the last leader was doing, swaps the map unchanged but for its own epoch,
//! and only then calculates: a late write of an old leader fails from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use phalanx_fsm::Fsm;

use super::config::Config;
use super::health::HealthyClock;
use super::io::{
    Condition, Effect, Notice, PlanSummary, Purpose, ReadError, RequestId, RequestIds, SubjectList,
    WriteError, Written,
};
use super::planner::Mode;
use super::publication::{MapHeader, MapInput, same_partitions};
use super::roster::Roster;
use super::suspects::{SuspectOutcome, Suspects};
use super::topology::{Topology, TopologyInput};
use super::trigger::{Decision, TriggerInput, Window, decide};
use super::types::{
    AssignmentMap, ClusterState, Entry, Epoch, Key, Lifecycle, PartitionList, Revision, Time, Value, Version,
    Weight, WindowKind, WorkerId,
};
use super::unlisted::{DesiredPartitions, UnlistedPartitions};
use super::{CalculatorState, ProtocolRule, WorkerState, fleet_size};

/// A map for fewer workers is never a restart.
const RESTART_MIN_WORKERS: usize = 10;
/// With this many of them there it is no restart either.
const RESTART_MAX_PRESENT: usize = 5;

/// What the controller may look at.
pub(super) struct ControllerContext<'a> {
    pub(super) now: Time,
    pub(super) config: &'a Config,
    pub(super) roster: &'a Roster,
    pub(super) clock: &'a HealthyClock,
    pub(super) partitions: Option<&'a Arc<PartitionList>>,
    pub(super) commanded_size: Option<u32>,
    /// What the last leader said it was doing, and when that arrived here.
    pub(super) last_state: Option<&'a (Arc<ClusterState>, Time)>,
    /// The newest map this process knows, whether it is still stored or not.
    pub(super) known_map: Option<&'a Arc<AssignmentMap>>,
    /// How long this process has watched, on the healthy clock.
    pub(super) watched: Duration,
}

/// How far a new leader has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    ReadingMap(RequestId),
    ClaimingMap(RequestId),
    Running,
    Publishing(RequestId),
}

/// What a map should hold, made from these.
#[derive(Debug)]
struct DesiredMap {
    listed: Arc<PartitionList>,
    version: Option<Version>,
    changes: u64,
    wanted: DesiredPartitions,
    /// The map holds something else.
    differs: bool,
}

#[derive(Debug)]
pub(super) struct Controller {
    epoch: Epoch,
    phase: Phase,
    calculator: Fsm<CalculatorState>,
    map: Option<(Arc<AssignmentMap>, Revision)>,
    /// The version of the last leader's map: it may be lost.
    min_version: Version,
    /// The map that is being written.
    proposed: Option<Arc<AssignmentMap>>,
    window: Option<Window>,
    /// How many changes the window has collected.
    pending: usize,
    inherited_grace_periods: BTreeMap<WorkerId, Time>,
    /// Who left and may come back until then, as of the last look at the fleet.
    grace_periods: BTreeMap<WorkerId, Time>,
    suspects: Suspects,
    unlisted: UnlistedPartitions,
    verify_at: Time,
    wanted: Option<DesiredMap>,
    /// Set at take-over, and until the fleet is whole or a map is published.
    restarting: bool,
    /// Versions whose balance was looked at, with the answer.
    imbalance: Option<(Version, bool)>,
    published_state: Option<(ClusterState, Time)>,
    /// What was said last has come back through the watch: whatever comes after it is a late write.
    state_echoed: bool,
    /// A late write of an earlier word stands in the key.
    state_overwritten: bool,
}

impl Controller {
    /// A leader that has just won: it begins by reading the map.
    pub(super) fn new(
        epoch: Epoch,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) -> Self {
        let request_id = request_ids.next(Purpose::LeaderReadMap);
        out.push(Effect::Read { request_id, key: Key::Map });
        let mut controller = Self {
            epoch,
            phase: Phase::ReadingMap(request_id),
            calculator: Fsm::new(context.now.since_origin()),
            map: None,
            min_version: context.last_state.map_or(Version(0), |(state, _)| state.version),
            proposed: None,
            window: None,
            pending: 0,
            inherited_grace_periods: BTreeMap::new(),
            grace_periods: BTreeMap::new(),
            suspects: Suspects::new(context.config),
            unlisted: UnlistedPartitions::default(),
            verify_at: context.now + context.config.unlisted_scan_interval,
            wanted: None,
            restarting: false,
            imbalance: None,
            published_state: None,
            state_echoed: false,
            state_overwritten: false,
        };
        controller.inherit_state(context);
        controller
    }

    /// Inherits the window and the grace periods of the last leader, counted from the arrival of its state.
    fn inherit_state(&mut self, context: &ControllerContext<'_>) {
        let Some((state, arrived)) = context.last_state else { return };
        self.window =
            state.window.map(|(kind, left)| Window { kind, opened: *arrived, ends: *arrived + left });
        if !context.config.enforces(ProtocolRule::InheritGracePeriods) {
            return;
        }
        self.inherited_grace_periods =
            state.grace_periods.iter().map(|(&id, &left)| (id, *arrived + left)).collect();
    }

    /// The map as this leader last read or wrote it.
    pub(super) fn map(&self) -> Option<&(Arc<AssignmentMap>, Revision)> {
        self.map.as_ref()
    }

    /// How many changes wait for the end of the window.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    pub(super) fn map_version(&self) -> Option<Version> {
        self.map.as_ref().map(|(map, _)| map.version)
    }

    /// The state everybody should show.
    pub(super) fn state(&self) -> WorkerState {
        match self.calculator.state() {
            CalculatorState::Idle => WorkerState::Stable,
            CalculatorState::Scaling => WorkerState::Scaling,
            CalculatorState::Rebalancing => WorkerState::Rebalancing,
            CalculatorState::Emergency => WorkerState::Emergency,
        }
    }

    /// The watch shows what stands in the state key: if that is not our last word although it has been there, it must be
    /// said again.
    pub(super) fn on_cluster_state(&mut self, state: &ClusterState) {
        let last = self
            .published_state
            .as_ref()
            .is_some_and(|(said, _)| (said.epoch, said.serial) == (state.epoch, state.serial));
        self.state_overwritten |= self.state_echoed && !last;
        self.state_echoed |= last;
    }

    /// An answer to a read of the map or about a suspect. Gives a heartbeat to note, if one was read.
    pub(super) fn fetched(
        &mut self,
        request_id: RequestId,
        result: Result<Option<Entry>, ReadError>,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) -> Option<(WorkerId, Entry)> {
        if matches!(request_id.purpose, Purpose::SuspectClaim | Purpose::SuspectHeartbeat) {
            return match self.suspects.fetched(request_id, &result, request_ids, out) {
                SuspectOutcome::Heartbeat(id, entry) => Some((id, entry)),
                SuspectOutcome::Dead | SuspectOutcome::Open => None,
            };
        }
        if self.phase != Phase::ReadingMap(request_id) {
            return None;
        }
        match result {
            Err(ReadError) => self.read_map(request_ids, out),
            Ok(entry) => {
                self.map = entry.and_then(|entry| map_of(&entry).map(|map| (map, entry.revision)));
                // What we proposed may be there already: its answer was lost.
                let landed = self
                    .proposed
                    .take()
                    .is_some_and(|proposed| self.map.as_ref().is_some_and(|(map, _)| *map == proposed));
                self.claim_map(landed, context, request_ids, out);
            }
        }
        None
    }

    fn read_map(&mut self, request_ids: &mut RequestIds, out: &mut Vec<Effect>) {
        let request_id = request_ids.next(Purpose::LeaderReadMap);
        out.push(Effect::Read { request_id, key: Key::Map });
        self.phase = Phase::ReadingMap(request_id);
    }

    /// Swaps the map unchanged but for the epoch, unless it carries ours already.
    fn claim_map(
        &mut self,
        landed: bool,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        let Some((map, revision)) = self.map.clone() else {
            self.restore(context, request_ids, out);
            return;
        };
        let untouched = !context.config.enforces(ProtocolRule::ClaimMapFirst);
        if map.epoch == self.epoch || untouched {
            if landed {
                self.published(context);
            }
            self.begin(context, out);
            return;
        }
        if map.epoch > self.epoch {
            self.epoch = map.epoch.next();
        }
        let request_id = request_ids.next(Purpose::TouchMap);
        let touched = Arc::new(AssignmentMap { epoch: self.epoch, ..(*map).clone() });
        let value = Value::Map(touched.clone());
        out.push(Effect::Write {
            request_id,
            key: Key::Map,
            value,
            condition: Condition::Revision(revision),
        });
        self.proposed = Some(touched);
        self.phase = Phase::ClaimingMap(request_id);
    }

    /// There is no map. If this process knows one it was lost, and is written again, above every version seen.
    fn restore(
        &mut self,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        let Some(known) = context.known_map else {
            self.begin(context, out);
            return;
        };
        let version = self.next_version(context).max(known.version.next());
        let restored = Arc::new(AssignmentMap {
            epoch: self.epoch,
            version,
            moved: 0,
            moved_weight: Weight(0),
            lower_bound_weight: Weight(0),
            ..(**known).clone()
        });
        let request_id = request_ids.next(Purpose::TouchMap);
        let value = Value::Map(restored.clone());
        out.push(Effect::Write { request_id, key: Key::Map, value, condition: Condition::Absent });
        self.proposed = Some(restored);
        self.phase = Phase::ClaimingMap(request_id);
    }

    /// The watch shows that the map is gone.
    pub(super) fn map_lost(&mut self, request_ids: &mut RequestIds, out: &mut Vec<Effect>) {
        if !matches!(self.phase, Phase::ReadingMap(_)) {
            self.read_map(request_ids, out);
        }
    }

    fn begin(&mut self, context: &ControllerContext<'_>, out: &mut Vec<Effect>) {
        if self.published_state.is_none() {
            let present = |map: &AssignmentMap| {
                let limit = context.config.crash_after();
                map.workers.iter().filter(|id| context.roster.is_live(**id, limit, context.clock)).count()
            };
            self.restarting = self.map.as_ref().is_some_and(|(map, _)| {
                map.workers.len() >= RESTART_MIN_WORKERS && present(map) < RESTART_MAX_PRESENT
            });
            if self.restarting {
                out.push(Effect::Notice(Notice::RestartDetected));
            }
        }
        self.phase = Phase::Running;
    }

    /// An answer to a write of the map.
    pub(super) fn written(
        &mut self,
        request_id: RequestId,
        result: Result<Written, WriteError>,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        if !matches!(self.phase, Phase::ClaimingMap(asked) | Phase::Publishing(asked) if asked == request_id)
        {
            return;
        }
        let publishing = matches!(self.phase, Phase::Publishing(_));
        match result {
            Ok(written) => {
                self.map = self.proposed.take().map(|map| (map, written.revision));
                if publishing {
                    self.published(context);
                }
                self.begin(context, out);
            }
            // A conflict means: read again and recompute. An unanswered write may be there: reading tells.
            Err(error) => {
                if error != WriteError::Unknown {
                    self.proposed = None;
                }
                self.read_map(request_ids, out);
            }
        }
    }

    fn published(&mut self, context: &ControllerContext<'_>) {
        self.restarting = false;
        self.window = None;
        self.pending = 0;
        self.transition(context.now, CalculatorState::Idle, "published");
    }

    /// Looks at the fleet and does what is due.
    pub(super) fn evaluate(
        &mut self,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        if self.phase == Phase::Running {
            if context.now >= self.verify_at {
                // The watch may have missed that the map is lost or was changed by another hand.
                self.verify_at = context.now + context.config.unlisted_scan_interval;
                self.read_map(request_ids, out);
                return;
            }
            if context.config.consumes_log {
                self.unlisted.scan_if_due(
                    context.now,
                    context.config.unlisted_scan_interval,
                    request_ids,
                    out,
                );
            }
            self.update_desired(context);
        }
        if matches!(self.phase, Phase::ReadingMap(_) | Phase::ClaimingMap(_)) {
            return;
        }
        let (topology, size) = self.topology(context);
        if self.phase == Phase::Running {
            self.decide(&topology, size, context, request_ids, out);
        }
        self.grace_periods = topology.grace_periods;
        self.publish_state(context, request_ids, out);
    }

    /// Keeps in mind what a map should hold: the list, whoever is adopted, and whoever is not drained yet.
    fn update_desired(&mut self, context: &ControllerContext<'_>) {
        let Some(listed) = context.partitions else { return };
        let (version, changes) = (self.map_version(), self.unlisted.changes());
        let current = self.wanted.as_ref().is_some_and(|plan| {
            Arc::ptr_eq(&plan.listed, listed) && plan.version == version && plan.changes == changes
        });
        if current {
            return;
        }
        let map = self.map.as_ref().map(|(map, _)| map.as_ref());
        let wanted = if context.config.consumes_log {
            self.unlisted.desired_partitions(listed, map)
        } else {
            DesiredPartitions { partitions: listed.clone(), adopted: BTreeSet::new() }
        };
        let differs = map.is_some_and(|map| !same_partitions(map, &wanted.partitions));
        self.wanted = Some(DesiredMap { listed: listed.clone(), version, changes, wanted, differs });
    }

    /// The log says which partitions it holds messages of.
    pub(super) fn subjects(
        &mut self,
        request_id: RequestId,
        result: Result<SubjectList, ReadError>,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        let Some(listed) = context.partitions else { return };
        let map = self.map.as_ref().map(|(map, _)| map.as_ref());
        self.unlisted.subjects(request_id, result, listed, map, request_ids, out);
    }

    /// The cursors of partitions that are not in the list were read.
    pub(super) fn on_unlisted_cursors(
        &mut self,
        request_id: RequestId,
        result: Result<Vec<Option<Entry>>, ReadError>,
        out: &mut Vec<Effect>,
    ) {
        let map = self.map.as_ref().map(|(map, _)| map.as_ref());
        self.unlisted.cursors(request_id, result, map, out);
    }

    fn topology(&self, context: &ControllerContext<'_>) -> (Topology, Option<u32>) {
        let map = self.map.as_ref().map(|(map, _)| map.as_ref());
        let size =
            fleet_size::in_force(context.commanded_size, context.config, context.roster, context.clock, map);
        let topology = Topology::of(&TopologyInput {
            now: context.now,
            config: context.config,
            roster: context.roster,
            clock: context.clock,
            map,
            fleet_size: size,
            inherited: &self.inherited_grace_periods,
            observed_long_enough: !self.restarting && context.watched >= context.config.cold_start_window,
        });
        (topology, size)
    }

    fn decide(
        &mut self,
        topology: &Topology,
        size: Option<u32>,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        self.suspects.retain(|id| topology.crashed.contains(&id));
        if context.config.crash_immediate && !topology.crashed.is_empty() {
            for &id in &topology.crashed {
                let incarnation = context.roster.get(id).map(|seen| seen.incarnation).unwrap_or_default();
                self.suspects.suspect(id, incarnation, request_ids, out);
            }
            let standby = context.roster.has_standby(context.config.echo_limit(), context.clock);
            if size.is_some() && standby && self.suspects.has_confirmed() {
                self.suspects.free_for_standby(context.now + context.config.standby_wait(), request_ids, out);
            }
            let condemned: BTreeSet<WorkerId> = topology
                .crashed
                .iter()
                .copied()
                .filter(|&id| self.suspects.is_confirmed_dead(id, context.now))
                .collect();
            if !condemned.is_empty() {
                self.emergency(topology, &condemned, size, context, request_ids, out);
            }
            // A planned calculation would have to know what becomes of the silent.
            return;
        }
        self.planned(topology, size, context, request_ids, out);
    }

    fn planned(
        &mut self,
        topology: &Topology,
        size: Option<u32>,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        if self.calculator.state() == CalculatorState::Emergency {
            // Its map was refused, and whoever was silent has spoken since.
            self.transition(context.now, CalculatorState::Idle, "the crash undid itself");
        }
        let Some(differs) = self.wanted.as_ref().map(|plan| plan.differs) else { return };
        let map = self.map.as_ref().map(|(map, _)| map.clone());
        // Cursors of a map that was lost: nobody may take them before there is a map above them.
        let outdated = map.as_ref().is_some_and(|map| self.highest_cursor(context) > map.version);
        let target = topology.target();
        let present = target.len() - topology.missing.len() - topology.grace_periods.len();
        let pending = map
            .as_ref()
            .map_or(present, |map| map.workers.symmetric_difference(&target).count() + usize::from(differs));
        let situation = TriggerInput {
            no_map: map.is_none(),
            restarting: self.restarting,
            changed: map.as_ref().is_some_and(|map| {
                map.workers != target || differs || outdated || self.is_imbalanced(map, context)
            }),
            missing: !topology.missing.is_empty(),
            complete: size.is_some_and(|size| present >= size as usize),
            growing: map
                .as_ref()
                .is_some_and(|map| size.is_some_and(|size| size as usize > map.workers.len())),
            urgent: outdated
                || map.as_ref().is_some_and(|map| {
                    map.fleet_size.is_some()
                        && map.workers.iter().any(|id| size.is_some_and(|size| id.0 >= size))
                }),
        };
        match decide(context.now, self.window, situation, context.config) {
            Decision::Idle => {
                self.restarting = self.restarting && situation.missing;
                self.window = None;
                self.pending = 0;
                if self.calculator.state() != CalculatorState::Idle {
                    self.transition(context.now, CalculatorState::Idle, "the change undid itself");
                }
            }
            Decision::Wait(window) => {
                self.window = Some(window);
                self.pending = pending;
                if self.calculator.state() == CalculatorState::Idle {
                    self.transition(context.now, CalculatorState::Scaling, "a window is open");
                }
            }
            Decision::Calculate => {
                // Whoever has not come by the end of the window is planned without.
                let workers: BTreeSet<WorkerId> = target.difference(&topology.missing).copied().collect();
                if workers.is_empty() {
                    return;
                }
                if self.calculator.state() == CalculatorState::Idle {
                    self.transition(context.now, CalculatorState::Scaling, "no window needed");
                }
                if self.calculator.state() == CalculatorState::Scaling {
                    self.transition(context.now, CalculatorState::Rebalancing, "the window ended");
                }
                self.publish(&workers, &workers, Mode::Planned, size, context, request_ids, out);
            }
        }
    }

    /// Plans one map for the partitions without an owner and for the joining workers. No other partition moves.
    fn emergency(
        &mut self,
        topology: &Topology,
        condemned: &BTreeSet<WorkerId>,
        size: Option<u32>,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        // Other silent ones keep theirs until they are confirmed too.
        let silent: BTreeSet<WorkerId> = topology.crashed.difference(condemned).copied().collect();
        let workers: BTreeSet<WorkerId> =
            topology.target().union(&silent).chain(&topology.leaving).copied().collect();
        let limit = context.config.echo_limit();
        let receivers: BTreeSet<WorkerId> =
            workers.iter().copied().filter(|id| context.roster.is_live(*id, limit, context.clock)).collect();
        if receivers.is_empty() {
            return;
        }
        self.window = None;
        self.transition(context.now, CalculatorState::Emergency, "a worker crashed");
        self.publish(&workers, &receivers, Mode::Emergency, size, context, request_ids, out);
    }

    #[allow(clippy::too_many_arguments, reason = "the two ways to a map share it")]
    fn publish(
        &mut self,
        workers: &BTreeSet<WorkerId>,
        receivers: &BTreeSet<WorkerId>,
        mode: Mode,
        size: Option<u32>,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        let Some(wanted) = self.wanted.as_ref().map(|plan| &plan.wanted).filter(|_| !workers.is_empty())
        else {
            return;
        };
        let current = self.map.as_ref().map(|(map, _)| map.as_ref());
        let lifecycle = match current {
            Some(map) if !self.restarting => map.lifecycle.next(),
            _ => Lifecycle::ColdStart.next(),
        };
        let options = &context.config.planner;
        let draft = MapInput { current, wanted, workers, receivers, mode, options };
        let imprint =
            MapHeader { version: self.next_version(context), epoch: self.epoch, lifecycle, fleet_size: size };
        let (map, planned) = draft.build(imprint);
        let map = Arc::new(map);
        let waited = self.window.map(|window| (window.kind, context.now.saturating_sub(window.opened)));
        out.push(Effect::Notice(Notice::Planned(PlanSummary { window: waited, ..planned })));
        let condition =
            self.map.as_ref().map_or(Condition::Absent, |(_, revision)| Condition::Revision(*revision));
        let request_id = request_ids.next(Purpose::PublishMap);
        out.push(Effect::Write { request_id, key: Key::Map, value: Value::Map(map.clone()), condition });
        self.proposed = Some(map);
        self.phase = Phase::Publishing(request_id);
    }

    /// Above the map's and above everything that anybody has seen or applied: a map that was lost must not come back
    /// with a version that somebody already knows.
    fn next_version(&self, context: &ControllerContext<'_>) -> Version {
        let seen = context.roster.iter().flat_map(|(_, seen)| [seen.map_version, seen.applied_version]);
        let seen =
            seen.chain([self.min_version]).filter(|_| context.config.enforces(ProtocolRule::VersionAboveAll));
        let highest = seen.chain(self.map_version()).max().unwrap_or_default();
        highest.max(self.highest_cursor(context)).next()
    }

    /// The highest version that anybody has seen in a cursor.
    fn highest_cursor(&self, context: &ControllerContext<'_>) -> Version {
        let seen = context.roster.iter().map(|(_, seen)| seen.cursor_version);
        seen.filter(|_| context.config.enforces(ProtocolRule::VersionAboveAll)).max().unwrap_or_default()
    }

    /// Whether the map is outside the threshold and could be nearer. Looked at once per version.
    fn is_imbalanced(&self, map: &AssignmentMap, context: &ControllerContext<'_>) -> bool {
        if let Some((_, imbalanced)) = self.imbalance.filter(|(version, _)| *version == map.version) {
            return imbalanced;
        }
        if !context.config.enforces(ProtocolRule::RebalanceAfterEmergency) {
            return false;
        }
        let Some(wanted) = self.wanted.as_ref().map(|plan| &plan.wanted) else { return false };
        let draft = MapInput {
            current: Some(map),
            wanted,
            workers: &map.workers,
            receivers: &map.workers,
            mode: Mode::Planned,
            options: &context.config.planner,
        };
        draft.would_move()
    }

    /// Tells everybody what the leader is doing, when that has changed.
    fn publish_state(
        &mut self,
        context: &ControllerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        if let Some((map, _)) = &self.map {
            let imbalanced = self.is_imbalanced(map, context);
            self.imbalance = Some((map.version, imbalanced));
        }
        let left = |until: Time| until.saturating_sub(context.now);
        let state = ClusterState {
            state: self.state(),
            epoch: self.epoch,
            version: self.map_version().unwrap_or_default().max(self.min_version),
            serial: self.published_state.as_ref().map_or(1, |(said, _)| said.serial + 1),
            window: self.window.map(|window| (window.kind, left(window.ends))),
            grace_periods: self.grace_periods.iter().map(|(&id, &until)| (id, left(until))).collect(),
        };
        // What is left of a window grows old, and whoever joins meanwhile cannot know how old: say it again.
        let interval = context.config.heartbeat_interval;
        let timed = state.window.is_some() || !state.grace_periods.is_empty();
        let news = self.state_overwritten
            || self.published_state.as_ref().is_none_or(|(said, at)| {
                timed && context.now.saturating_sub(*at) >= interval
                    || said.state != state.state
                    || said.version != state.version
                    || said.window.map(|(kind, _)| kind) != state.window.map(|(kind, _)| kind)
                    || !said.grace_periods.keys().eq(state.grace_periods.keys())
            });
        if news {
            let request_id = request_ids.next(Purpose::WriteState);
            let value = Value::ClusterState(Arc::new(state.clone()));
            out.push(Effect::Write { request_id, key: Key::ClusterState, value, condition: Condition::None });
            self.published_state = Some((state, context.now));
            self.state_echoed = false;
            self.state_overwritten = false;
        }
    }

    /// When something is due, besides what the healthy clock decides.
    pub(super) fn next_deadline(&self, now: Time) -> Option<Time> {
        let window = self.window.map(|window| window.ends);
        let others = self.suspects.next_deadline().into_iter().chain(self.unlisted.next_deadline());
        let graces = self.grace_periods.values().copied().filter(|&until| now < until);
        window.into_iter().chain([self.verify_at]).chain(others).chain(graces).min()
    }

    fn transition(&mut self, now: Time, to: CalculatorState, cause: &'static str) {
        if self.calculator.state() != to {
            let legal = self.calculator.transition(now.since_origin(), to, cause);
            debug_assert!(legal.is_ok(), "{legal:?}");
        }
    }
}

fn map_of(entry: &Entry) -> Option<Arc<AssignmentMap>> {
    match &entry.value {
        Value::Map(map) => Some(map.clone()),
        _ => None,
    }
}

/// The kind of a window, as it is counted and shown.
impl WindowKind {
    /// The name by which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::ColdStart => "cold_start",
            Self::Restart => "restart",
            Self::PlannedScale => "planned_scale",
        }
    }
}
