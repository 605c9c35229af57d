//! The facts that all parts of a worker share: its settings, the time, its identity, and what the watches have shown.
//!
//! The worker owns them and lends them as a whole. Only the worker changes them; the parts read them.

use std::sync::Arc;
use std::time::Duration;

use super::config::Config;
use super::health::{HealthyClock, HealthyInstant};
use super::policy::Policy;
use super::roster::Roster;
use super::types::{
    AssignmentMap, ClusterState, PartitionList, Pod, Revision, Time, Version, WorkerId, WorkerIncarnation,
};

/// The shared facts of one worker.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) config: Config,
    /// The time of the current step.
    pub(crate) now: Time,
    pub(crate) pod: Pod,
    /// The id that this process holds, with its incarnation.
    pub(crate) identity: Option<WorkerIncarnation>,
    pub(crate) clock: HealthyClock,
    pub(crate) roster: Roster,
    /// The partition list, with weights.
    pub(crate) partitions: Option<Arc<PartitionList>>,
    /// The fleet size that an operator has set.
    pub(crate) commanded_size: Option<u32>,
    /// The newest state of a leader, and its arrival.
    pub(crate) cluster_state: Option<(Arc<ClusterState>, Time)>,
    /// The newest map, whether it is still stored or not.
    pub(crate) map: Option<(Arc<AssignmentMap>, Revision)>,
    /// The moment when this process began to watch.
    pub(crate) watching_since: Option<HealthyInstant>,
    /// The newest time of the broker that was seen, in microseconds.
    pub(crate) broker_time: u64,
}

impl Facts {
    /// Returns the facts of a process that has just started.
    pub(crate) fn new(now: Time, pod: Pod, config: Config) -> Self {
        Self {
            now,
            pod,
            identity: None,
            clock: HealthyClock::new(now, &config),
            roster: Roster::default(),
            partitions: None,
            commanded_size: None,
            cluster_state: None,
            map: None,
            watching_since: None,
            broker_time: 0,
            config,
        }
    }

    /// Returns the decisions of the protocol.
    pub(crate) fn policy(&self) -> Policy {
        self.config.policy
    }

    /// Returns the identity of a worker that serves partitions or leads.
    pub(crate) fn me(&self) -> WorkerIncarnation {
        self.identity.unwrap_or_else(|| violated!("only a worker with an id serves or leads"))
    }

    /// Returns the newest map, if there is one.
    pub(crate) fn map(&self) -> Option<&AssignmentMap> {
        self.map.as_ref().map(|(map, _)| map.as_ref())
    }

    /// Returns the map that a worker with partitions serves.
    pub(crate) fn serving_map(&self) -> &AssignmentMap {
        self.map().unwrap_or_else(|| violated!("only a worker with a map serves partitions"))
    }

    /// Returns the version of the newest map, or 0.
    pub(crate) fn map_version(&self) -> Version {
        self.map().map_or(Version(0), |map| map.version)
    }

    /// Returns the time for which this process has watched, on the healthy clock.
    pub(crate) fn watched(&self) -> Duration {
        self.watching_since.map(|since| self.clock.since(since)).unwrap_or_default()
    }

    /// Whether a worker was heard before it would count as crashed, and has not left.
    pub(crate) fn is_live(&self, id: WorkerId) -> bool {
        self.roster.is_live(id, self.config.crash_after(), &self.clock)
    }

    /// Returns the fleet size in force. A command takes precedence. A configured value counts if all live workers agree on
    /// it; until then the size of `map` stays in force.
    pub(crate) fn fleet_size(&self, map: Option<&AssignmentMap>) -> Option<u32> {
        if self.commanded_size.is_some() {
            return self.commanded_size;
        }
        let configured = self.config.fleet_size;
        let mut live = self.roster.live(self.config.crash_after(), &self.clock);
        if live.all(|(_, seen)| seen.fleet_size == configured) {
            configured
        } else {
            map.and_then(|map| map.fleet_size)
        }
    }

    /// Records a time of the broker.
    pub(crate) fn note_broker_time(&mut self, stored_at: u64) {
        self.broker_time = self.broker_time.max(stored_at);
    }

    /// Records a map unless a newer revision is known. Returns whether it is new.
    pub(crate) fn note_map(&mut self, map: Arc<AssignmentMap>, revision: Revision) -> bool {
        if self.map.as_ref().is_some_and(|(_, known)| *known >= revision) {
            return false;
        }
        self.map = Some((map, revision));
        true
    }

    /// Records the state of a leader unless a newer one is known: a late write of an older state changes nothing.
    pub(crate) fn note_cluster_state(&mut self, state: Arc<ClusterState>) {
        let newest = self.cluster_state.as_ref().map(|(known, _)| (known.epoch, known.serial));
        if newest.is_none_or(|newest| (state.epoch, state.serial) > newest) {
            self.cluster_state = Some((state, self.now));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::roster::tests::healthy_clock;

    /// Returns the facts of a process with default settings whose clock has been healthy for some seconds.
    pub(crate) fn healthy_facts(seconds: u64) -> Facts {
        let pod = Pod { name: "pod".into(), uid: "uid".into() };
        let now = Time::from_secs(seconds);
        Facts { clock: healthy_clock(seconds), ..Facts::new(now, pod, Config::default()) }
    }
}
