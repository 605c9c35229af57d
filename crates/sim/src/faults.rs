//! The faults of the design, each by its name. A schedule is a list of them, made from a seed, so that it can be repeated
//! and shortened.

use std::fmt;
use std::time::Duration;

use phalanx_cluster_core::types::Time;

use crate::broker::MessageKind;
use crate::event::ScheduledAction;
use crate::fleet::ProcessId;
use crate::rng::Rng;

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

impl Fault {
    /// Returns whether the shell mode injects this kind. It cannot stop a process between two effects of its core, its
    /// clock runs through a suspension, its list of partitions and its fleet size never change, and it has no folder.
    pub fn is_in_shell_mode(self) -> bool {
        !matches!(
            self,
            Self::KilledBetweenEffects
                | Self::FrozenMachine
                | Self::ScaleDown
                | Self::MixedFleetSizes
                | Self::PartitionRemoved
                | Self::UnknownPartition
                | Self::FolderReopened
        )
    }
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

/// A cluster that faults can be injected into.
pub(crate) trait FaultTarget {
    fn now(&self) -> Time;
    fn running(&self) -> Vec<ProcessId>;
    fn leader(&self) -> Option<ProcessId>;
    /// Returns the number of partitions that ever existed.
    fn partitions(&self) -> u32;
    /// Returns the number of partitions that were listed at the start.
    fn listed(&self) -> u32;
    fn published_for(&self, partition: u32) -> u64;
    fn retention(&self) -> Duration;
    fn note(&mut self, what: String);
    fn plan(&mut self, delay: Duration, action: ScheduledAction);
    fn kill(&mut self, process: ProcessId);
    fn kill_after_effects(&mut self, process: ProcessId, effects: u32);
    fn terminate(&mut self, process: ProcessId);
    fn stop(&mut self, process: ProcessId);
    fn freeze(&mut self, process: ProcessId);
    fn plan_kind(&mut self, partition: u32, kind: MessageKind);
    fn cut(&mut self, process: ProcessId, until: Time);
    fn cut_in(&mut self, process: ProcessId, until: Time);
    fn cut_out(&mut self, process: ProcessId, until: Time);
    fn cut_all(&mut self, until: Time);
    fn slow_down(&mut self, process: ProcessId, by: Duration);
    fn lose_heartbeats(&mut self, process: ProcessId);
    fn delay_watch(&mut self, process: ProcessId, by: Duration);
    fn drop_map_event(&mut self, process: ProcessId);
    fn restart_watch(&mut self, process: ProcessId);
    fn step_broker_clock(&mut self, by_micros: i64);
    fn lose_cursors(&mut self);
    fn lose_map(&mut self);
    fn recreate_log(&mut self);
    fn lose_tail(&mut self, count: usize);
    fn store_away(&mut self, until: Time);
    fn store_late(&mut self, until: Time, by: Duration);
    fn change_strategy(&mut self);
    fn add_unlisted_partition(&mut self);
    fn unlist(&mut self, partition: u32);
}

/// Injects one fault.
pub(crate) fn inject(world: &mut impl FaultTarget, injection: &Injection, workers: usize) {
    let mut dice = Rng::new(injection.entropy);
    let living = world.running();
    let Some(&victim) = living.get(dice.next() as usize % living.len().max(1)) else {
        world.plan(Duration::ZERO, ScheduledAction::Start);
        return;
    };
    let leader = world.leader().unwrap_or(victim);
    let now = world.now();
    let seconds =
        |dice: &mut Rng, low: u64, high: u64| Duration::from_millis(dice.between(low * 500, high * 500));
    let partitions = world.partitions();
    let partition = dice.between(0, u64::from(partitions)) as u32;
    world.note(format!("fault {}", injection.fault.name()));
    // A process that is killed for good is started again, as its host would.
    let restart = |dice: &mut Rng| Duration::from_millis(dice.between(500, 20_000));
    match injection.fault {
        Fault::Sigkill => {
            world.kill(victim);
            world.plan(restart(&mut dice), ScheduledAction::Start);
        }
        Fault::KilledBetweenEffects => {
            world.kill_after_effects(victim, dice.between(0, 20) as u32);
            world.plan(restart(&mut dice), ScheduledAction::Start);
        }
        Fault::Sigstop => {
            world.stop(victim);
            let wake = seconds(&mut dice, 1, 120);
            world.plan(wake, ScheduledAction::Resume(victim));
        }
        Fault::FrozenMachine => {
            world.freeze(victim);
            let wake = seconds(&mut dice, 1, 120);
            world.plan(wake, ScheduledAction::Resume(victim));
        }
        Fault::Sigterm => {
            world.terminate(victim);
            world.plan(restart(&mut dice), ScheduledAction::Start);
        }
        Fault::KilledInDrain => {
            world.terminate(victim);
            world.plan(Duration::from_millis(dice.between(0, 400)), ScheduledAction::Kill(victim));
            world.plan(restart(&mut dice), ScheduledAction::Start);
        }
        Fault::Poison => world.plan_kind(partition, MessageKind::CrashesWorker),
        Fault::FailedAttempts => world.plan_kind(partition, MessageKind::Flaky(dice.between(1, 5) as u8)),
        Fault::BrokenMessage => world.plan_kind(partition, MessageKind::Poison),
        Fault::ProcessTimeout => world.plan_kind(partition, MessageKind::NeverEnds),
        Fault::LinkLoss => world.cut(victim, now + seconds(&mut dice, 1, 40)),
        Fault::OneWayLoss => {
            let until = now + seconds(&mut dice, 1, 40);
            if dice.one_in(2) { world.cut_in(victim, until) } else { world.cut_out(victim, until) }
        }
        Fault::SlowAnswers => {
            world.slow_down(victim, Duration::from_millis(dice.between(200, 1_990)));
            world.plan(seconds(&mut dice, 4, 40), ScheduledAction::Mend(victim));
        }
        Fault::HeartbeatGap => {
            world.lose_heartbeats(victim);
            world.plan(seconds(&mut dice, 4, 40), ScheduledAction::Mend(victim));
        }
        Fault::SlowWatch => {
            world.delay_watch(victim, seconds(&mut dice, 1, 12));
            world.plan(seconds(&mut dice, 10, 60), ScheduledAction::Mend(victim));
        }
        Fault::DroppedMapEvent => world.drop_map_event(victim),
        Fault::Resync => world.restart_watch(victim),
        Fault::BrokerStall => world.cut_all(now + seconds(&mut dice, 8, 16)),
        Fault::BrokerOutage => world.cut_all(now + seconds(&mut dice, 20, 120)),
        Fault::BrokerClockStep => {
            world.step_broker_clock(dice.between(0, 20_000_000) as i64 - 10_000_000);
        }
        Fault::BucketRecreated => world.lose_cursors(),
        Fault::MapLost => world.lose_map(),
        Fault::LogRecreated => world.recreate_log(),
        Fault::LostTail => world.lose_tail(dice.between(1, 20) as usize),
        Fault::Expiry => {
            let retention = world.retention();
            world.plan(Duration::ZERO, ScheduledAction::Retention(seconds(&mut dice, 1, 10)));
            world.plan(seconds(&mut dice, 2, 10), ScheduledAction::Retention(retention));
        }
        Fault::StoreOutage => world.store_away(now + seconds(&mut dice, 2, 60)),
        Fault::LateStoreWrite => world.store_late(now + seconds(&mut dice, 2, 20), seconds(&mut dice, 2, 60)),
        Fault::StrategyChanged => world.change_strategy(),
        Fault::LeaderKilled => {
            world.kill(leader);
            if dice.one_in(3) {
                // Its successor too, as soon as it leads.
                world.plan(Duration::from_millis(dice.between(6_000, 9_000)), ScheduledAction::KillLeader);
                world.plan(restart(&mut dice), ScheduledAction::Start);
            }
            world.plan(restart(&mut dice), ScheduledAction::Start);
        }
        Fault::TwoLeaders => {
            world.stop(leader);
            world.plan(Duration::from_millis(dice.between(5_000, 14_000)), ScheduledAction::Resume(leader));
        }
        Fault::AllKilled => {
            for process in living {
                world.kill(process);
                world.plan(Duration::from_millis(dice.between(1_000, 25_000)), ScheduledAction::Start);
            }
        }
        Fault::RolloutWithSurge => {
            for (turn, process) in living.into_iter().enumerate() {
                let at = Duration::from_secs(3 * turn as u64);
                world.plan(at, ScheduledAction::Start);
                world.plan(at + Duration::from_secs(2), ScheduledAction::Terminate(process));
            }
        }
        Fault::Rollout => {
            for (turn, process) in living.into_iter().enumerate() {
                let at = Duration::from_secs(4 * turn as u64);
                world.plan(at, ScheduledAction::Terminate(process));
                world.plan(at + Duration::from_millis(dice.between(500, 20_000)), ScheduledAction::Start);
            }
        }
        Fault::SurplusReplicas => {
            if living.len() < workers + 3 {
                world.plan(Duration::ZERO, ScheduledAction::Start);
            }
        }
        Fault::ScaleDown => {
            let size = dice.between(workers as u64 / 2, workers as u64).max(1) as u32;
            world.plan(Duration::ZERO, ScheduledAction::FleetSize(Some(size)));
            world.plan(seconds(&mut dice, 10, 120), ScheduledAction::FleetSize(None));
        }
        Fault::MixedFleetSizes => {
            let size = dice.one_in(2).then_some(workers as u32 + 1);
            world.plan(Duration::ZERO, ScheduledAction::StartWithSize(size));
        }
        Fault::Flapping => {
            for turn in 0..4 {
                let at = Duration::from_millis(5_000 * turn + dice.between(0, 4_000));
                world.plan(at, ScheduledAction::Start);
                world.plan(at + Duration::from_millis(dice.between(500, 3_000)), ScheduledAction::KillNewest);
            }
        }
        Fault::JoinAndCrash => {
            world.plan(Duration::ZERO, ScheduledAction::Start);
            world.plan(Duration::from_millis(dice.between(0, 9_000)), ScheduledAction::Kill(victim));
        }
        Fault::UnknownPartition => {
            if partitions < world.listed() + 5 {
                world.add_unlisted_partition();
            }
        }
        Fault::PartitionRemoved => world.unlist(partition),
        Fault::Replay => {
            if let Some(number) = world.published_for(partition).checked_sub(1) {
                world.plan(seconds(&mut dice, 0, 60), ScheduledAction::Replay(partition, number));
            }
        }
        Fault::FleetRestart => {
            let pause = Duration::from_millis(dice.between(500, 90_000));
            for process in living {
                world.terminate(process);
            }
            for _ in 0..workers {
                let delay = Duration::from_millis(dice.between(0, 3_000));
                world.plan(pause + delay, ScheduledAction::Start);
            }
        }
        Fault::FolderReopened => {
            let is_clean = !dice.one_in(4);
            let pause = Duration::from_millis(dice.between(500, 90_000));
            for process in living {
                if is_clean { world.terminate(process) } else { world.kill(process) }
            }
            world.plan(pause, ScheduledAction::ReopenFolder);
            for _ in 0..workers {
                world.plan(pause, ScheduledAction::Start);
            }
        }
        Fault::LateDuplicate => {
            if let Some(number) = world.published_for(partition).checked_sub(1) {
                world.plan(seconds(&mut dice, 242, 400), ScheduledAction::PublishAgain(partition, number));
            }
        }
    }
}
