//! One process of the fleet.

use phalanx_cluster_core::WorkerCore;
use phalanx_cluster_core::types::Time;

use crate::event::SimEvent;
use crate::fleet::clock::Clock;
use crate::handler::Handler;

/// A process with its worker, its handler and the clock of its machine.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) worker: WorkerCore,
    pub(crate) handler: Handler,
    pub(crate) is_alive: bool,
    pub(crate) is_stopped: bool,
    /// The time since which its clock is suspended too, because the host suspended its machine.
    pub(crate) frozen: Option<Time>,
    /// Whether its clock was ever suspended: then it cannot know how much time has passed.
    pub(crate) lost_time: bool,
    clock: Clock,
    /// The number of effects after which it is killed.
    pub(crate) kill_after_effects: Option<u32>,
    /// The events that reached it while it was stopped.
    pub(crate) pending_events: Vec<SimEvent>,
    /// The time of its next wake-up.
    pub(crate) wake: Option<Time>,
    /// The deadline of its worker, by its own clock.
    pub(crate) deadline: Option<Time>,
}

impl Process {
    /// A process that starts now.
    pub(crate) fn new(worker: WorkerCore, clock: Clock) -> Self {
        Self {
            worker,
            handler: Handler::default(),
            is_alive: true,
            is_stopped: false,
            frozen: None,
            lost_time: false,
            clock,
            kill_after_effects: None,
            pending_events: Vec::new(),
            wake: None,
            deadline: None,
        }
    }

    /// Returns the time that its own clock shows.
    pub(crate) fn clock(&self, now: Time) -> Time {
        self.clock.shows(now)
    }

    /// Returns when its own clock shows a time.
    pub(crate) fn world_time(&self, shown: Time) -> Time {
        self.clock.when(shown)
    }

    /// Continues after a stop. A frozen machine does not know how long it was suspended.
    pub(crate) fn resume(&mut self, now: Time) {
        self.is_stopped = false;
        if let Some(since) = self.frozen.take() {
            self.clock.suspend(since, now);
            self.lost_time = true;
        }
    }

    /// Counts one more effect. Returns whether it lives to execute it; `None` if it must be killed first.
    pub(crate) fn may_execute(&mut self) -> Option<bool> {
        match &mut self.kill_after_effects {
            Some(0) => return None,
            Some(left) => *left -= 1,
            None => {}
        }
        Some(self.is_alive)
    }
}
