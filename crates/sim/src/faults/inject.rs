//! Injection of faults into a cluster of either mode.

use std::time::Duration;

use phalanx_cluster_core::types::Time;

use crate::broker::MessageKind;
use crate::event::ScheduledAction;
use crate::faults::{Fault, Injection};
use crate::fleet::ProcessId;
use crate::rng::Rng;

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
