//! The world as a target of faults.

use std::time::Duration;

use phalanx_cluster_core::types::{Key, Time};

use crate::broker::MessageKind;
use crate::event::ScheduledAction;
use crate::faults::FaultTarget;
use crate::fleet::ProcessId;
use crate::world::World;

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(fn $name(&mut self, $($argument: $type),*) {
            Self::$name(self, $($argument),*);
        })*
    };
}

impl FaultTarget for World {
    fn now(&self) -> Time {
        self.now
    }

    fn running(&self) -> Vec<ProcessId> {
        self.fleet.running().to_vec()
    }

    fn leader(&self) -> Option<ProcessId> {
        Self::leader(self)
    }

    fn partitions(&self) -> u32 {
        Self::partitions(self)
    }

    fn listed(&self) -> u32 {
        Self::listed(self)
    }

    fn published_for(&self, partition: u32) -> u64 {
        Self::published_for(self, partition)
    }

    fn retention(&self) -> Duration {
        Self::retention(self)
    }

    fn note(&mut self, what: String) {
        Self::note(self, || what);
    }

    fn lose_map(&mut self) {
        self.lose(&Key::Map);
    }

    forward! {
        plan(delay: Duration, action: ScheduledAction);
        kill(process: ProcessId);
        kill_after_effects(process: ProcessId, effects: u32);
        terminate(process: ProcessId);
        stop(process: ProcessId);
        freeze(process: ProcessId);
        plan_kind(partition: u32, kind: MessageKind);
        cut(process: ProcessId, until: Time);
        cut_in(process: ProcessId, until: Time);
        cut_out(process: ProcessId, until: Time);
        cut_all(until: Time);
        slow_down(process: ProcessId, by: Duration);
        lose_heartbeats(process: ProcessId);
        delay_watch(process: ProcessId, by: Duration);
        drop_map_event(process: ProcessId);
        restart_watch(process: ProcessId);
        step_broker_clock(by_micros: i64);
        lose_cursors();
        recreate_log();
        lose_tail(count: usize);
        store_away(until: Time);
        store_late(until: Time, by: Duration);
        change_strategy();
        add_unlisted_partition();
        unlist(partition: u32);
    }
}
