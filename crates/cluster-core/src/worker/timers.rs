//! What is due: one pass over everything, asking only what is true now.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use phalanx_fsm::State as _;

use super::super::consumer::ConsumerContext;
use super::super::controller::Controller;
use super::super::election::ElectionContext;
use super::super::fence::FenceState;
use super::super::identity::IdSearch;
use super::super::io::{Condition, Effect, Purpose, RequestId, Warning};
use super::super::shutdown::ShutdownPhase;
use super::super::types::{Heartbeat, Key, Time, Value, Version, WorkerId};
use super::super::{ProtocolRule, WorkerState, fleet_size};
use super::{MIN_PASS_INTERVAL, WorkerCore};

impl WorkerCore {
    /// Does whatever is due.
    pub(super) fn run_due(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.run_consumer(now, out);
        if self.leaving.is_some() {
            self.continue_shutdown(now, out);
        } else if self.synced {
            self.claim_id(now, out);
            self.run_controller(now, out);
            self.release_surplus_id(now, out);
        }
        self.catch_up(now, out);
        self.update_state(now);
        self.send_heartbeat(now, out);
    }

    pub(super) fn check_fence(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.identity.holder().is_none() {
            return;
        }
        if self.fence.tick(now) {
            out.push(Effect::Fence);
            self.consumption.fence(&self.config);
            self.controller = None;
            self.election.abandon();
            self.transition(now, WorkerState::Degraded, "no heartbeat was acknowledged");
            self.heartbeat_due = true;
        }
        match self.fence.stage() {
            FenceState::AwaitingClaim { .. } => self.identity.renew(&mut self.request_ids, out),
            FenceState::AwaitingMap { .. } if self.map_read.is_none() => self.read_map(out),
            _ => {}
        }
    }

    pub(super) fn claim_id(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.identity.holder().is_some() || self.identity.is_busy() {
            return;
        }
        if self.state() == WorkerState::Initialization {
            if now < self.next_heartbeat {
                return;
            }
            self.transition(now, WorkerState::ClaimingId, "trying again");
        }
        let map = self.map.as_ref().map(|(map, _)| map.as_ref());
        let size = fleet_size::in_force(self.commanded_size, &self.config, &self.roster, &self.clock, map);
        let nobody = BTreeSet::new();
        let search = IdSearch {
            in_map: map.map_or(&nobody, |map| &map.workers),
            limit: size.unwrap_or(self.config.max_workers).min(self.config.max_workers),
            stale: self.config.claim_expiry,
            map_first: self.config.enforces(ProtocolRule::MapIdsFirst),
            clock: &self.clock,
        };
        let (limit, found) = (search.limit, self.identity.search(&search, &mut self.request_ids, out));
        if !found && size.is_none() {
            out.push(Effect::Warn(Warning::PoolExhausted { ids: limit }));
            self.transition(now, WorkerState::Initialization, "every id is taken");
        }
    }

    pub(super) fn run_controller(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(me) = self.identity.holder() else { return };
        if !self.fence.is_open(now) {
            return;
        }
        let candidate =
            ElectionContext { me, config: &self.config, roster: &self.roster, clock: &self.clock };
        self.election.campaign(now, &candidate, &mut self.request_ids, out);
        self.with_controller(now, out, |controller, context, request_ids, out| {
            controller.evaluate(context, request_ids, out)
        });
    }

    /// The leader has a newer map than we do, and the watch has not brought it for a second: read it.
    pub(super) fn catch_up(&mut self, now: Time, out: &mut Vec<Effect>) {
        let overdue =
            self.map_outdated_since.is_some_and(|since| now.saturating_sub(since) >= Duration::from_secs(1));
        if overdue && self.map_read.is_none() {
            self.map_outdated_since = None;
            self.read_map(out);
        }
    }

    pub(super) fn read_map(&mut self, out: &mut Vec<Effect>) {
        let request_id = self.request_ids.next(Purpose::ReadMap);
        out.push(Effect::Read { request_id, key: Key::Map });
        self.map_read = Some(request_id);
    }

    /// Before the first assignment the state is the role; afterwards it is what the leader says the cluster is doing.
    pub(super) fn update_state(&mut self, now: Time) {
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
            self.transition(now, role, if self.is_leader() { "won the election" } else { "another leads" });
            let named = self.map.as_ref().is_some_and(|(map, _)| map.workers.contains(&me.id));
            if named {
                self.transition(now, WorkerState::Stable, "has an assignment");
                return;
            }
            // At a cold start nobody has an assignment, and the leader shows what it does all the same.
            let busy = self.controller.as_ref().map(Controller::state);
            if let Some(busy) = busy.filter(|&busy| busy != WorkerState::Stable) {
                self.transition(now, busy, "as its calculator does");
            }
            return;
        }
        let shown = match &self.controller {
            Some(controller) => controller.state(),
            None => self.last_state.as_ref().map_or(WorkerState::Stable, |(state, _)| state.state),
        };
        if shown != state && !state.can_transition_to(shown) {
            self.transition(now, WorkerState::Stable, "between two states of the leader");
        }
        self.transition(now, shown, "as the leader says");
    }

    pub(super) fn leave_degraded(&mut self, now: Time) {
        let Some(me) = self.identity.holder().filter(|_| self.state() == WorkerState::Degraded) else {
            return;
        };
        let named = self.map.as_ref().is_some_and(|(map, _)| map.workers.contains(&me.id));
        let to = if named { WorkerState::Stable } else { WorkerState::Election };
        self.transition(now, to, "proved itself again");
        self.heartbeat_due = true;
    }

    pub(super) fn send_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_due = now >= self.next_heartbeat;
        let silent = !self.synced || self.leaving.is_some_and(|stage| !stage.needs_heartbeats());
        if silent || !(is_due || self.heartbeat_due) {
            return;
        }
        self.heartbeat_due = false;
        let request_id = self.request_ids.next(Purpose::Heartbeat);
        self.fence.heartbeat_sent(now, request_id.serial);
        self.unanswered.insert(request_id.serial);
        out.push(self.heartbeat_effect(request_id, false));
        if is_due {
            self.next_heartbeat = now + self.config.heartbeat_interval;
            if now >= self.next_renewal {
                self.next_renewal = now + self.config.claim_renewal();
                self.identity.renew(&mut self.request_ids, out);
            }
        }
    }

    pub(super) fn heartbeat_effect(&self, request_id: RequestId, left: bool) -> Effect {
        let holder = self.identity.holder();
        let key =
            holder.map_or(Key::StandbyHeartbeat(self.pod.uid.clone()), |holder| Key::Heartbeat(holder.id));
        let value = Value::Heartbeat(Arc::new(Heartbeat {
            pod: self.pod.clone(),
            worker: holder,
            serial: request_id.serial,
            state: self.state(),
            left,
            is_leader: self.is_leader(),
            map_version: self.map.as_ref().map_or(Version(0), |(map, _)| map.version),
            applied_version: self.assignment.applied(),
            cursor_version: self.consumption.cursor_version(),
            assigned: self.assignment.len(),
            processed: self.consumption.processed(),
            fleet_size: self.config.fleet_size,
        }));
        Effect::Write { request_id, key, value, condition: Condition::None }
    }

    /// Partitions: what may be started is started, and what a map took is reported once it is let go of.
    pub(super) fn run_consumer(&mut self, now: Time, out: &mut Vec<Effect>) {
        if let (Some(me), Some((map, _)), true) = (self.identity.holder(), &self.map, self.fence.is_open(now))
        {
            let context = consumer_context!(self, now, me, map);
            self.consumption.run_due(&context, &mut self.request_ids, out);
            if self.consumption.take_map_request() {
                self.map_outdated_since.get_or_insert(now);
            }
        }
        if self.config.consumes_log && self.consumption.has_released_all() {
            self.heartbeat_due |= self.assignment.mark_all_released();
        }
    }

    /// When the worker must be called again: for its duties, or for a partition.
    pub(super) fn set_deadline(&mut self, now: Time) {
        let partitions = match (self.identity.holder(), &self.map) {
            (Some(me), Some((map, _))) if self.fence.is_open(now) => {
                self.consumption.next_deadline(&consumer_context!(self, now, me, map))
            }
            _ => None,
        };
        let partitions = partitions.map(|due| due.max(now + MIN_PASS_INTERVAL));
        self.deadline = self.next_timer.into_iter().chain(partitions).min();
    }

    pub(super) fn compute_deadline(&self, now: Time) -> Option<Time> {
        if self.leaving == Some(ShutdownPhase::Done) || !self.synced {
            return None;
        }
        let holds = self.identity.holder().is_some();
        let fence = self.fence.closes_at().filter(|_| holds).map(|closes| closes + MIN_PASS_INTERVAL);
        let behind = self.map_outdated_since.map(|since| since + Duration::from_secs(1));
        let controller = self.controller.as_ref().and_then(|controller| controller.next_deadline(now));
        let drain = self.leaving.filter(|stage| stage.needs_heartbeats()).map(|_| self.drain_until);
        let due = [
            Some(self.next_heartbeat),
            drain,
            fence,
            behind,
            self.election.next_deadline(),
            controller,
            self.next_crash_deadline(now),
            self.next_observation_deadline(now),
        ];
        due.into_iter().flatten().min().map(|due| due.max(now + MIN_PASS_INTERVAL))
    }

    /// When somebody whose silence matters will have been silent for too long, if nothing is heard until then.
    pub(super) fn next_crash_deadline(&self, now: Time) -> Option<Time> {
        let until = |id: WorkerId| {
            let silent = self.roster.time_since_heartbeat(id, &self.clock)?;
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
    pub(super) fn next_observation_deadline(&self, now: Time) -> Option<Time> {
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
