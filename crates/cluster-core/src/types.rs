//! Values that are stored and sent: identities, numbers with a meaning, moments, and the value of each key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::sync::Arc;
use std::time::Duration;

use super::WorkerState;
use super::cursor::Cursor;

/// Partitions and their weights.
pub type PartitionList = [(Arc<str>, Weight)];

/// A moment on the clock of one process: the time since the origin of that clock, which runs through suspension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Duration);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Self = Self(Duration::ZERO);
    /// A moment that never comes.
    pub const MAX: Self = Self(Duration::MAX);

    /// Returns the moment that is `elapsed` after the origin.
    pub const fn from_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Returns the moment this number of seconds after the origin.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Returns the moment this number of milliseconds after the origin.
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }

    /// Returns the moment this number of microseconds after the origin.
    pub const fn from_micros(microseconds: u64) -> Self {
        Self(Duration::from_micros(microseconds))
    }

    /// Returns the time between the origin and this moment.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// Returns the time since `earlier`, or zero if that moment is later than this one.
    pub const fn saturating_sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment that is `length` before this one, unless it is before the origin.
    pub const fn checked_sub(self, length: Duration) -> Option<Self> {
        match self.0.checked_sub(length) {
            Some(elapsed) => Some(Self(elapsed)),
            None => None,
        }
    }
}

/// Panics if the sum is above [`Time::MAX`].
impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0 + length)
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, length: Duration) {
        *self = *self + length;
    }
}

/// Panics if the result is before the origin.
impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, length: Duration) -> Self {
        Self(self.0 - length)
    }
}

/// Panics if `earlier` is later.
impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0 - earlier.0
    }
}

/// Returns the number after `number`.
///
/// Numbers that only grow must never start again at 0, so an overflow stops the worker in every build.
#[track_caller]
pub(super) fn next_number(number: u64, what: &str) -> u64 {
    let Some(next) = number.checked_add(1) else { violated!("no {what} is left above {number}") };
    next
}

/// The weight of a partition: its cost for the owner, or a sum of such costs. Weights come from outside, so sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(pub u64);

impl Add for Weight {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Weight {
    fn sum<I: Iterator<Item = Self>>(weights: I) -> Self {
        weights.fold(Self(0), Add::add)
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The sequence of a message in a log; 0 is before the first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The place before the first message.
    pub const START: Self = Self(0);
    /// The first message.
    pub const FIRST: Self = Self(1);

    /// Returns the sequence after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(next_number(self.0, "sequence"))
    }

    /// Returns the sequence before this one; before the first message that is [`Sequence::START`].
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fencing token of a cursor. It grows with every takeover and every new attempt at a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub u64);

impl FencingToken {
    /// The token of a new cursor.
    pub const FIRST: Self = Self(1);

    /// Returns the token after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(next_number(self.0, "fencing token"))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The timestamp of the results of a message, in microseconds. Of two writes the one with the higher timestamp wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteTimestamp(pub u64);

impl WriteTimestamp {
    /// Returns the timestamp after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(next_number(self.0, "write timestamp"))
    }
}

impl fmt::Display for WriteTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of a log: its creation time by the clock of the broker, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u64);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a worker id. The name of the id has a prefix that the group gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker-{}", self.0)
    }
}

/// The incarnation of an id: the broker's store time of its claim, in microseconds. It only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// Returns the incarnation after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(next_number(self.0, "incarnation"))
    }
}

/// One incarnation of one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerIncarnation {
    /// The id.
    pub id: WorkerId,
    /// The incarnation.
    pub incarnation: Incarnation,
}

/// A process, with or without an id: its pod, and a number that no other process has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// The name for users.
    pub name: Arc<str>,
    /// The unique id of the process; a restarted container of the same pod keeps it.
    pub uid: Arc<str>,
}

/// The revision of a stored value, which a compare-and-swap compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl Revision {
    /// Any revision: only for a worker that runs without the rule to compare.
    pub const ANY: Self = Self(u64::MAX);
}

/// The term number of a leader. It grows with every leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Returns the epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(next_number(self.0, "epoch"))
    }
}

/// The version of a map. It only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// Returns the version after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(next_number(self.0, "version"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// The key of a stored value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The claim of an id.
    Claim(WorkerId),
    /// The heartbeat of a worker.
    Heartbeat(WorkerId),
    /// The heartbeat of a process without an id, by its pod's uid.
    StandbyHeartbeat(Arc<str>),
    /// The lease of the leader.
    Lease,
    /// The current map.
    Map,
    /// The state of the leader.
    ClusterState,
    /// The fleet size that an operator has set.
    FleetSize,
    /// The cursor of a partition.
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

impl Key {
    /// Whether one process at a time writes this key, so that a write needs no condition. A late write of an earlier leader
    /// to the state key is recognized by its epoch and serial number.
    pub(crate) fn has_one_writer(&self) -> bool {
        matches!(self, Self::Heartbeat(_) | Self::StandbyHeartbeat(_) | Self::ClusterState)
    }
}

impl Value {
    /// Whether this kind of value is stored behind this key.
    pub(crate) fn belongs_to(&self, key: &Key) -> bool {
        match self {
            Self::Claim(_) => matches!(key, Key::Claim(_)),
            Self::Heartbeat(_) => matches!(key, Key::Heartbeat(_) | Key::StandbyHeartbeat(_)),
            Self::Lease(_) => matches!(key, Key::Lease),
            Self::Map(_) => matches!(key, Key::Map),
            Self::ClusterState(_) => matches!(key, Key::ClusterState),
            Self::FleetSize(_) => matches!(key, Key::FleetSize),
            Self::Cursor(_) => matches!(key, Key::Cursor(_)),
        }
    }
}

/// A stored value with its revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// Its revision.
    pub revision: Revision,
    /// The broker's time when it was stored, in microseconds.
    pub stored_at: u64,
}

/// The claim of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The process that holds the id.
    pub pod: Pod,
    /// The number of renewals, so that every renewal changes the value.
    pub renewals: u64,
}

/// A heartbeat: a periodic record that a process lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The process that sends it.
    pub pod: Pod,
    /// The id that it holds, with its incarnation; none for a standby.
    pub worker: Option<WorkerIncarnation>,
    /// The number of this heartbeat, by which a process recognizes its own when the watch returns it.
    pub serial: u64,
    /// The state of the worker.
    pub state: WorkerState,
    /// Whether this is the leave record: the worker has left on purpose.
    pub left: bool,
    /// Whether it leads.
    pub is_leader: bool,
    /// The newest map it has seen.
    pub map_version: Version,
    /// The newest map whose removed partitions it has all released.
    pub applied_version: Version,
    /// The highest version it has seen in a cursor: a restored map must be above it.
    pub cursor_version: Version,
    /// The number of partitions it owns.
    pub assigned: usize,
    /// The number of messages it has committed.
    pub processed: u64,
    /// The fleet size of its configuration, if it has one.
    pub fleet_size: Option<u32>,
}

/// The lease of the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The leader.
    pub holder: WorkerIncarnation,
    /// The epoch of its leadership.
    pub epoch: Epoch,
    /// The number of renewals, so that every renewal changes the value.
    pub renewals: u64,
}

/// The progress of a cluster since its start.
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
    /// Returns its name in the map.
    pub fn name(self) -> &'static str {
        match self {
            Self::ColdStart => "cold_start",
            Self::PostColdStart => "post_cold_start",
            Self::Stable => "stable",
        }
    }

    /// Returns the lifecycle of the next map.
    pub fn next(self) -> Self {
        match self {
            Self::ColdStart => Self::PostColdStart,
            Self::PostColdStart | Self::Stable => Self::Stable,
        }
    }
}

/// The assignment map: the owner of every partition.
#[derive(Clone, Debug, PartialEq)]
pub struct AssignmentMap {
    /// The version, which grows with every change.
    pub version: Version,
    /// The epoch of the last leader that touched it.
    pub epoch: Epoch,
    /// The progress of the cluster.
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
    pub moved_weight: Weight,
    /// The least weight that any plan would have moved.
    pub lower_bound_weight: Weight,
}

/// The owner of a partition and its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The owner.
    pub owner: WorkerId,
    /// The weight it was planned with.
    pub weight: Weight,
    /// Whether it is not in the list and was adopted because the log held messages of it.
    pub adopted: bool,
}

/// The reason for an open window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// There is no map yet.
    ColdStart,
    /// There is a map, and almost none of its workers was heard when the leader took over.
    Restart,
    /// Workers joined or left, or partitions changed.
    PlannedScale,
}

/// The state of the leader, for all workers to see and for the next leader to inherit.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterState {
    /// `STABLE`, `SCALING`, `REBALANCING` or `EMERGENCY`.
    pub state: WorkerState,
    /// The epoch of the leader that wrote it.
    pub epoch: Epoch,
    /// The version of its map: a restored map must be above it.
    pub version: Version,
    /// The number of this state of that leader, so that a late write is recognized.
    pub serial: u64,
    /// The open window and the rest of it when this was written.
    pub window: Option<(WindowKind, Duration)>,
    /// Ids of workers that have left, and the rest of their grace periods when this was written.
    pub grace_periods: BTreeMap<WorkerId, Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_and_a_length_give_a_time_and_two_times_give_a_length() {
        let (early, late) = (Time::from_secs(3), Time::from_millis(5500));
        assert_eq!((late - early, early + Duration::from_millis(2500)), (Duration::from_millis(2500), late));
        assert_eq!((early.saturating_sub(late), late.saturating_sub(early)), (Duration::ZERO, late - early));
        assert_eq!(early.checked_sub(Duration::from_secs(1)), Some(Time::from_secs(2)));
        assert_eq!(early.checked_sub(Duration::from_secs(4)), None);
    }

    #[test]
    fn numbers_that_grow_never_start_again() {
        assert_eq!(Sequence(7).next(), Sequence(8));
        assert_eq!((Sequence(7).previous(), Sequence::START.previous()), (Sequence(6), Sequence::START));
        let overflows: [fn() -> u64; 6] = [
            || Sequence(u64::MAX).next().0,
            || FencingToken(u64::MAX).next().0,
            || WriteTimestamp(u64::MAX).next().0,
            || Incarnation(u64::MAX).next().0,
            || Epoch(u64::MAX).next().0,
            || Version(u64::MAX).next().0,
        ];
        for next in overflows {
            assert!(std::panic::catch_unwind(next).is_err());
        }
    }

    #[test]
    fn a_sum_of_weights_that_is_too_large_stays_at_the_largest() {
        assert_eq!([Weight(u64::MAX), Weight(1)].into_iter().sum::<Weight>(), Weight(u64::MAX));
    }
}
