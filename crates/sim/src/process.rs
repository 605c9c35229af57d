//! One process of the fleet, and the state of its link to the broker.

use std::collections::BTreeSet;
use std::time::Duration;

use phalanx_cluster_core::types::{Key, Time, WorkerIncarnation};
use phalanx_cluster_core::{Event, Purpose, WorkerCore};

use crate::handler::Handler;
use crate::world::SimEvent;

/// What is watched together: changes within it are shown in their order, changes of two are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bucket {
    Ids,
    Heartbeats,
    Election,
    Assignments,
}

impl Bucket {
    pub(crate) fn of(key: &Key) -> Self {
        match key {
            Key::Claim(_) => Self::Ids,
            Key::Heartbeat(_) | Key::StandbyHeartbeat(_) => Self::Heartbeats,
            Key::Lease => Self::Election,
            Key::Map | Key::ClusterState | Key::FleetSize | Key::Cursor(_) => Self::Assignments,
        }
    }
}

/// The clock of one machine: it began at another time than the world's, and it drifts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// What it showed when the world began, in microseconds.
    offset: i64,
    /// How much faster it runs, in parts per million.
    drift: i64,
}

impl Clock {
    pub(crate) fn new(offset: Duration, drift: i64) -> Self {
        Self { offset: offset.as_micros() as i64, drift }
    }

    pub(crate) fn shows(self, now: Time) -> Time {
        let now = now.since_origin().as_micros() as i64;
        // Not in whole seconds: a monotonic clock never goes back, not even by a microsecond.
        Time::from_micros((now + now * self.drift / 1_000_000 + self.offset).max(0) as u64)
    }

    fn when(self, shown: Time) -> Time {
        let elapsed = (shown.since_origin().as_micros() as i64 - self.offset).max(0);
        let mut when = elapsed - elapsed * self.drift / (1_000_000 + self.drift) - 2;
        // Rounding: go to the first moment that shows it.
        while self.shows(Time::from_micros(when.max(0) as u64)) < shown {
            when += 1;
        }
        Time::from_micros(when.max(0) as u64)
    }

    /// Stands still from `since` to `now`, and continues with the time that it showed.
    fn suspend(&mut self, since: Time, now: Time) {
        self.offset -= (self.shows(now) - self.shows(since)).as_micros() as i64;
    }
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) worker: WorkerCore,
    pub(crate) handler: Handler,
    pub(crate) alive: bool,
    /// It stands still.
    pub(crate) stopped: bool,
    /// Since when it stands still, if its clock does too: a machine that was suspended by its host.
    pub(crate) frozen: Option<Time>,
    /// Whether its clock ever stood still: then it cannot know how much time has passed.
    pub(crate) lost_time: bool,
    clock: Clock,
    /// It is killed after carrying out so many more effects.
    pub(crate) kill_after_effects: Option<u32>,
    /// What reached it while it stood still.
    pub(crate) pending_events: Vec<SimEvent>,
    pub(crate) wake: Option<Time>,
    /// What its worker last asked to be woken at, by its own clock.
    pub(crate) deadline: Option<Time>,
    /// Until then nothing it sends arrives.
    pub(crate) cut_out: Time,
    /// Until then nothing reaches it.
    pub(crate) cut_in: Time,
    /// Until then it does not reach whoever grants leases.
    pub(crate) cut_from_agent: Time,
    /// How much longer its answers take.
    pub(crate) slowness: Duration,
    /// Its heartbeats get lost, and nothing else.
    pub(crate) drops_heartbeats: bool,
    /// How much later it is shown what it watches.
    pub(crate) watch_delay: Duration,
    /// The next change of the map is not shown to it.
    pub(crate) drops_map: bool,
    /// Until then it may not be expected to do well: it was stopped, cut off, or waited in vain for an answer.
    pub(crate) disturbed_until: Time,
    /// Whether anything ever befell it.
    pub(crate) disturbed: bool,
    /// The id it held when last looked at.
    pub(crate) held: Option<u32>,
    /// Incarnation of the id that it last held.
    pub(crate) holder: Option<WorkerIncarnation>,
    /// What it watches and has not been shown yet, in order, and when it may be.
    pub(crate) delayed_events: Vec<(Time, Bucket, Event)>,
    /// Its next request for this purpose is repeated after so long.
    pub(crate) repeats: Option<(Purpose, Duration)>,
    /// The partitions whose wake-ups it receives.
    pub(crate) subscriptions: BTreeSet<u32>,
}

impl Process {
    pub(crate) fn new(worker: WorkerCore, clock: Clock) -> Self {
        Self {
            worker,
            handler: Handler::default(),
            alive: true,
            stopped: false,
            frozen: None,
            lost_time: false,
            clock,
            kill_after_effects: None,
            pending_events: Vec::new(),
            wake: None,
            deadline: None,
            cut_out: Time::ZERO,
            cut_in: Time::ZERO,
            cut_from_agent: Time::ZERO,
            slowness: Duration::ZERO,
            drops_heartbeats: false,
            watch_delay: Duration::ZERO,
            drops_map: false,
            disturbed_until: Time::ZERO,
            disturbed: false,
            held: None,
            holder: None,
            delayed_events: Vec::new(),
            repeats: None,
            subscriptions: BTreeSet::new(),
        }
    }

    /// Notes that something befalls it until then.
    pub(crate) fn disturb(&mut self, until: Time) {
        self.disturbed_until = self.disturbed_until.max(until);
        self.disturbed = true;
    }

    /// What its own clock shows.
    pub(crate) fn clock(&self, now: Time) -> Time {
        self.clock.shows(now)
    }

    /// When its own clock will show that.
    pub(crate) fn world_time(&self, shown: Time) -> Time {
        self.clock.when(shown)
    }

    /// It goes on after it stood still; a frozen machine does not know for how long.
    pub(crate) fn wake_up(&mut self, now: Time) {
        self.stopped = false;
        if let Some(since) = self.frozen.take() {
            self.clock.suspend(since, now);
            self.lost_time = true;
        }
    }

    /// Until when it hears nothing of what it watches.
    pub(crate) fn watch_blocked_until(&self, bucket: Bucket) -> Time {
        match bucket {
            Bucket::Election => self.cut_in.max(self.cut_from_agent),
            _ => self.cut_in,
        }
    }

    fn holds_back(&self, bucket: Bucket) -> bool {
        self.delayed_events.iter().any(|(_, of, _)| *of == bucket)
    }

    /// Whether it is shown what it watches like everybody else.
    pub(crate) fn watch_is_immediate(&self, now: Time, bucket: Bucket) -> bool {
        self.watch_blocked_until(bucket) <= now
            && self.watch_delay.is_zero()
            && !self.drops_map
            && !self.holds_back(bucket)
    }
}
