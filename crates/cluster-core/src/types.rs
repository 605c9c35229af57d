//! What is stored and sent: identities, and the values behind the keys of the design.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::WorkerState;
use super::cursor::Cursor;

/// Partitions and their weights.
pub type PartitionList = [(Arc<str>, u64)];

/// A moment on the clock of one process: time since an origin of its own, running through suspension.
pub type Time = Duration;

/// The number of a worker id. The name of the id has a prefix that the group gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker-{}", self.0)
    }
}

/// Which life of an id this is: the broker's store time of the claim, in microseconds. It only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// One life of one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerIncarnation {
    /// The id.
    pub id: WorkerId,
    /// Which life of it.
    pub incarnation: Incarnation,
}

/// A process, before and beside its id: its pod, and a number that no other process has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// What people call it.
    pub name: Arc<str>,
    /// What tells it from every other process; a restarted container of the same pod keeps it.
    pub uid: Arc<str>,
}

/// The revision of a stored value: what a compare-and-swap compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl Revision {
    /// Whatever is there: only for a worker that works without the rule to compare.
    pub const ANY: Self = Self(u64::MAX);
}

/// Grows with every leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// The version of a map. It only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// Where a value is stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Who holds an id.
    Claim(WorkerId),
    /// The sign of life of a worker.
    Heartbeat(WorkerId),
    /// The sign of life of a process without an id, by its pod's uid.
    StandbyHeartbeat(Arc<str>),
    /// Who leads.
    Lease,
    /// The current map.
    Map,
    /// What the leader is doing.
    ClusterState,
    /// How many workers there should be, by a person's command.
    FleetSize,
    /// How far a partition is committed.
    Cursor(Arc<str>),
}

/// A stored value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Behind [`Key::Claim`].
    Claim(Claim),
    /// Behind [`Key::Heartbeat`] and [`Key::StandbyHeartbeat`].
    Heartbeat(Arc<Heartbeat>),
    /// Behind [`Key::Lease`].
    Lease(Lease),
    /// Behind [`Key::Map`].
    Map(Arc<AssignmentMap>),
    /// Behind [`Key::ClusterState`].
    ClusterState(Arc<ClusterState>),
    /// Behind [`Key::FleetSize`].
    FleetSize(u32),
    /// Behind [`Key::Cursor`].
    Cursor(Arc<Cursor>),
}

/// A value as the broker has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// Its revision.
    pub revision: Revision,
    /// The broker's time when it was stored, in microseconds.
    pub stored_at: u64,
}

/// Who holds an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The holder.
    pub pod: Pod,
    /// Counts the holder's renewals, so that every renewal changes the value.
    pub renewals: u64,
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The process that sends it.
    pub pod: Pod,
    /// The life of the id it holds; none for a standby.
    pub worker: Option<WorkerIncarnation>,
    /// Counts this process's heartbeats: by it a process knows its own when it comes back through the watch.
    pub serial: u64,
    /// What the worker is doing.
    pub state: WorkerState,
    /// A farewell: the worker has left on purpose.
    pub left: bool,
    /// Whether it leads.
    pub is_leader: bool,
    /// The newest map it has seen.
    pub map_version: Version,
    /// The newest map whose losses it has fully let go of.
    pub applied_version: Version,
    /// The highest version it has seen in a cursor: a map that was lost must come back above it.
    pub cursor_version: Version,
    /// How many partitions it owns.
    pub assigned: usize,
    /// How many messages it has committed.
    pub processed: u64,
    /// How many workers there should be, if its configuration says so.
    pub fleet_size: Option<u32>,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The leader.
    pub holder: WorkerIncarnation,
    /// The epoch of its leadership.
    pub epoch: Epoch,
    /// Counts renewals, so that every renewal changes the value.
    pub renewals: u64,
}

/// How far a cluster has come since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Nothing was published yet.
    ColdStart,
    /// The first map since the start.
    PostColdStart,
    /// Any later map.
    Stable,
}

impl Lifecycle {
    /// As it stands in the map.
    pub fn name(self) -> &'static str {
        match self {
            Self::ColdStart => "cold_start",
            Self::PostColdStart => "post_cold_start",
            Self::Stable => "stable",
        }
    }

    /// What the next publication says.
    pub fn next(self) -> Self {
        match self {
            Self::ColdStart => Self::PostColdStart,
            Self::PostColdStart | Self::Stable => Self::Stable,
        }
    }
}

/// Who owns what.
#[derive(Clone, Debug, PartialEq)]
pub struct AssignmentMap {
    /// Grows with every change.
    pub version: Version,
    /// The epoch of the last leader that touched it.
    pub epoch: Epoch,
    /// How far the cluster has come.
    pub lifecycle: Lifecycle,
    /// The workers it was planned for, also those that own nothing.
    pub workers: BTreeSet<WorkerId>,
    /// The owner and the weight of each partition.
    pub assignments: BTreeMap<Arc<str>, Assignment>,
    /// The fleet size in force, if there is one.
    pub fleet_size: Option<u32>,
    /// Partitions that changed their owner with this version.
    pub moved: usize,
    /// Their weight.
    pub moved_weight: u64,
    /// The least weight that any plan would have moved.
    pub lower_bound_weight: u64,
}

/// The owner of a partition, and what it weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The owner.
    pub owner: WorkerId,
    /// The weight it was planned with.
    pub weight: u64,
    /// It is not in the list: the log held messages of it.
    pub adopted: bool,
}

/// Why a window is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// There is no map yet.
    ColdStart,
    /// There is a map, and almost nobody of it was there at take-over.
    Restart,
    /// Somebody came or went, or partitions changed.
    PlannedScale,
}

/// What the leader is doing, for everybody to see and for the next leader to inherit.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterState {
    /// `STABLE`, `SCALING`, `REBALANCING` or `EMERGENCY`.
    pub state: WorkerState,
    /// The leader that says so.
    pub epoch: Epoch,
    /// The version of its map: a map that was lost must come back above it.
    pub version: Version,
    /// Counts what that leader has said: a late write must not look like news.
    pub serial: u64,
    /// The open window and what was left of it when this was written.
    pub window: Option<(WindowKind, Duration)>,
    /// Ids that have left, and what was left of their graces when this was written.
    pub grace_periods: BTreeMap<WorkerId, Duration>,
}
