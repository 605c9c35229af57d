//! The faults of the design, each by its name. A schedule is a list of them, made from a seed, so that it can be repeated
//! and shortened.

mod inject;

use std::fmt;
use std::time::Duration;

use phalanx_cluster_core::types::Time;

use crate::rng::Rng;

pub(crate) use inject::{FaultTarget, inject};

macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $weight:literal;)*) => {
        /// A kind of fault that is injected at a moment. Lost, late, repeated and stale answers come by shaking.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault { $($(#[$doc])* $variant,)* }

        impl Fault {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name by which it is chosen and counted.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the weight of this kind in a choice. Restarts have a schedule of their own and the weight 0, so that a
            /// seed keeps its other faults.
            fn weight(self) -> u64 {
                match self { $(Self::$variant => $weight,)* }
            }
        }
    };
}

faults! {
    /// A process is killed.
    Sigkill = "sigkill", 6;
    /// A process is killed after one of its next effects.
    KilledBetweenEffects = "killedBetweenEffects", 6;
    /// A process stands still, and its clock runs on.
    Sigstop = "sigstop", 5;
    /// A process and its clock stand still.
    FrozenMachine = "frozenMachine", 2;
    /// A process is told to leave.
    Sigterm = "sigterm", 4;
    /// A process is told to leave, and killed while it drains.
    KilledInDrain = "killedInDrain", 3;
    /// The next message of a partition kills whoever processes it.
    Poison = "poison", 2;
    /// The next message of a partition fails a few times.
    FailedAttempts = "failedAttempts", 3;
    /// The next message of a partition can never be processed.
    BrokenMessage = "brokenMessage", 3;
    /// The next message of a partition never ends by itself.
    ProcessTimeout = "processTimeout", 1;
    /// Nothing passes between a process and the broker.
    LinkLoss = "linkLoss", 5;
    /// Nothing passes in one direction.
    OneWayLoss = "oneWayLoss", 4;
    /// Answers to a process are late.
    SlowAnswers = "slowAnswers", 3;
    /// The heartbeats of a process get lost.
    HeartbeatGap = "heartbeatGap", 3;
    /// A process is shown late what it watches: its reads are newer than its watch.
    SlowWatch = "slowWatch", 3;
    /// A change of the map is not shown to a process.
    DroppedMapEvent = "droppedMapEvent", 3;
    /// A watch begins anew, with old values.
    Resync = "resync", 3;
    /// The broker hangs for some seconds.
    BrokerStall = "brokerStall", 2;
    /// The broker is away for up to a minute.
    BrokerOutage = "brokerOutage", 1;
    /// The broker's clock jumps.
    BrokerClockStep = "brokerClockStep", 2;
    /// The bucket of the cursors is made anew.
    BucketRecreated = "bucketRecreated", 1;
    /// The map is lost.
    MapLost = "mapLost", 1;
    /// The log is made anew.
    LogRecreated = "logRecreated", 1;
    /// The log loses its newest messages.
    LostTail = "lostTail", 1;
    /// Unread messages grow too old.
    Expiry = "expiry", 1;
    /// The store does not answer.
    StoreOutage = "storeOutage", 3;
    /// Writes to the store land after their writer has given up.
    LateStoreWrite = "lateStoreWrite", 3;
    /// The strategy is changed.
    StrategyChanged = "strategyChanged", 3;
    /// The leader is killed.
    LeaderKilled = "leaderKilled", 4;
    /// The leader stands still until another leads.
    TwoLeaders = "twoLeaders", 3;
    /// Everything is killed, and comes back one by one.
    AllKilled = "allKilled", 1;
    /// Every process is replaced, the new one first.
    RolloutWithSurge = "rolloutWithSurge", 1;
    /// Every process is replaced, the old one first.
    Rollout = "rollout", 1;
    /// More processes than there should be.
    SurplusReplicas = "surplusReplicas", 3;
    /// A person makes the fleet smaller, and later as large as before.
    ScaleDown = "scaleDown", 1;
    /// A process says another fleet size than the others.
    MixedFleetSizes = "mixedFleetSizes", 1;
    /// A process dies again and again.
    Flapping = "flapping", 1;
    /// A process joins, and another dies within its window.
    JoinAndCrash = "joinAndCrash", 2;
    /// A partition that nobody has listed publishes.
    UnknownPartition = "unknownPartition", 1;
    /// A partition is removed from the list while it has a backlog.
    PartitionRemoved = "partitionRemoved", 1;
    /// A tool sends a notification again, after the broker has forgotten the first.
    LateDuplicate = "lateDuplicate", 2;
    /// A person publishes a notification again, under an id of its own.
    Replay = "replay", 2;
    /// Every worker leaves, and the fleet starts again, perhaps after its leave records have expired.
    FleetRestart = "fleetRestart", 0;
    /// Every worker leaves or is killed, and the fleet starts again in an embedded folder.
    FolderReopened = "folderReopened", 0;
}

macro_rules! request_faults {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// A kind of fault that befalls any request by chance, all the time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum RequestFault { $($(#[$doc])* $variant,)* }

        impl RequestFault {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name by which it is chosen and counted.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

request_faults! {
    /// A write lands up to six seconds late, perhaps after its caller has given up.
    LateWrite = "lateWrite";
    /// A read is answered up to six seconds late, or in vain.
    LateAnswer = "lateAnswer";
    /// An answer gets lost.
    LostAnswer = "lostAnswer";
    /// A write arrives a second time.
    DuplicatedRequest = "duplicatedRequest";
    /// A read of a key or a cursor is answered with the value before.
    StaleRead = "staleRead";
    /// A read of the log, where it may be old, does not show the newest messages.
    StaleLog = "staleLog";
}

/// A fault at a moment, with what it needs to choose its victim and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// When.
    pub at: Time,
    /// What.
    pub fault: Fault,
    /// From this number it is chosen whom it hits, and for how long.
    pub entropy: u64,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10.3} s {}", self.at.since_origin().as_secs_f64(), self.fault.name())
    }
}

/// Faults for so long, chosen from these kinds.
pub(crate) fn schedule(rng: &mut Rng, kinds: &[Fault], from: Time, until: Time) -> Vec<Injection> {
    let total: u64 = kinds.iter().map(|kind| kind.weight()).sum();
    let mut injections = Vec::new();
    let mut at = from;
    if total == 0 {
        return injections;
    }
    loop {
        at += Duration::from_millis(rng.between(100, 25_000));
        if at >= until {
            break;
        }
        let mut left = rng.between(0, total);
        let chosen = kinds.iter().find(|kind| {
            let hit = left < kind.weight();
            left = left.saturating_sub(kind.weight());
            hit
        });
        injections.extend(chosen.map(|&fault| Injection { at, fault, entropy: rng.next() }));
    }
    injections
}

/// Restarts of the whole fleet, of these kinds.
pub(crate) fn schedule_restarts(rng: &mut Rng, kinds: &[Fault], from: Time, until: Time) -> Vec<Injection> {
    let is_restart = |kind: &Fault| matches!(kind, Fault::FleetRestart | Fault::FolderReopened);
    let restarts: Vec<Fault> = kinds.iter().copied().filter(is_restart).collect();
    let mut injections = Vec::new();
    let mut at = from;
    loop {
        at += Duration::from_millis(rng.between(30_000, 600_000));
        let Some(&fault) = restarts.get(rng.next() as usize % restarts.len().max(1)) else { break };
        if at >= until {
            break;
        }
        injections.push(Injection { at, fault, entropy: rng.next() });
    }
    injections
}
