//! Actions that are scheduled from outside.

use std::time::Duration;

use phalanx_cluster_core::Config;
use phalanx_cluster_core::types::{Key, Value};

use crate::event::{ScheduledAction, SimEvent};
use crate::world::World;

impl World {
    /// Schedules an action.
    pub fn plan(&mut self, delay: Duration, planned: ScheduledAction) {
        self.later(delay, SimEvent::Scheduled(self.now, planned));
    }

    /// Limits the number of processes: beyond it, scheduled starts do nothing.
    pub fn limit_processes(&mut self, most: usize) {
        self.fleet.max_processes = most;
    }

    /// Kills the processes that were started with another fleet size.
    pub fn kill_mismatched(&mut self) {
        for odd in self.fleet.take_mismatched() {
            self.kill(odd);
        }
    }

    /// Drops the actions that are scheduled.
    pub fn drop_scheduled(&mut self) {
        self.actions_dropped_until = self.now;
    }

    pub(super) fn execute_action(&mut self, planned: ScheduledAction) {
        match planned {
            ScheduledAction::Start => {
                if self.fleet.has_room() {
                    self.start();
                }
            }
            ScheduledAction::StartWithSize(fleet_size) => {
                let config = Config { fleet_size, ..self.setup.config.clone() };
                let odd = self.start_with(config);
                self.fleet.add_mismatched(odd);
            }
            ScheduledAction::Kill(process) => self.kill(process),
            ScheduledAction::Terminate(process) => self.terminate(process),
            ScheduledAction::Resume(process) => self.resume(process),
            ScheduledAction::Mend(process) => {
                self.slow_down(process, Duration::ZERO);
                self.carry_heartbeats(process);
                self.delay_watch(process, Duration::ZERO);
            }
            ScheduledAction::Retention(retention) => self.keep_messages_for(retention),
            ScheduledAction::FleetSize(Some(size)) => self.command(&Key::FleetSize, Value::FleetSize(size)),
            ScheduledAction::FleetSize(None) => self.lose(&Key::FleetSize),
            ScheduledAction::PublishAgain(partition, number) => self.publish_again(partition, number),
            ScheduledAction::Replay(partition, number) => self.replay(partition, number),
            ScheduledAction::KillLeader => self.leader().into_iter().for_each(|leader| self.kill(leader)),
            ScheduledAction::ReopenFolder => self.reopen_folder(),
            ScheduledAction::KillNewest => {
                self.fleet.running().last().copied().into_iter().for_each(|newest| self.kill(newest))
            }
        }
    }
}
