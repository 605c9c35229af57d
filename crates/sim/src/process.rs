//! One process of the fleet, and the state of its link to the broker.

use std::collections::BTreeSet;
use std::time::Duration;

use phalanx_cluster::core::Worker;
use phalanx_cluster::core::types::Time;

use crate::handler::Handler;
use crate::world::Happening;

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) worker: Worker,
    pub(crate) handler: Handler,
    pub(crate) alive: bool,
    /// It stands still.
    pub(crate) stopped: bool,
    /// Since when it stands still, if its clock does too: a machine that was suspended by its host.
    pub(crate) frozen: Option<Time>,
    /// How far its clock is behind, because it was frozen.
    pub(crate) behind: Duration,
    /// What reached it while it stood still.
    pub(crate) mailbox: Vec<Happening>,
    pub(crate) wake: Option<Time>,
    /// Until then nothing it sends arrives.
    pub(crate) cut_out: Time,
    /// Until then nothing reaches it.
    pub(crate) cut_in: Time,
    /// How much longer its answers take.
    pub(crate) slowness: Duration,
    /// Its heartbeats get lost, and nothing else.
    pub(crate) mute: bool,
    /// How much later it is shown what it watches.
    pub(crate) watch_delay: Duration,
    /// Until then the next change of the map is not shown to it.
    pub(crate) drops_map: bool,
    /// Until then it may not be expected to do well: it was stopped, cut off, or waited in vain for an answer.
    pub(crate) disturbed_until: Time,
    /// Whether anything ever befell it.
    pub(crate) disturbed: bool,
    /// The id it held when last looked at.
    pub(crate) held: Option<u32>,
    /// The chambers whose bells it hears.
    pub(crate) bells: BTreeSet<u32>,
}

impl Process {
    pub(crate) fn new(worker: Worker) -> Self {
        Self {
            worker,
            handler: Handler::default(),
            alive: true,
            stopped: false,
            frozen: None,
            behind: Duration::ZERO,
            mailbox: Vec::new(),
            wake: None,
            cut_out: Time::ZERO,
            cut_in: Time::ZERO,
            slowness: Duration::ZERO,
            mute: false,
            watch_delay: Duration::ZERO,
            drops_map: false,
            disturbed_until: Time::ZERO,
            disturbed: false,
            held: None,
            bells: BTreeSet::new(),
        }
    }

    /// Notes that something befalls it until then.
    pub(crate) fn disturb(&mut self, until: Time) {
        self.disturbed_until = self.disturbed_until.max(until);
        self.disturbed = true;
    }

    /// What its own clock shows.
    pub(crate) fn clock(&self, now: Time) -> Time {
        now.saturating_sub(self.behind)
    }

    /// Whether it is shown what it watches like everybody else.
    pub(crate) fn hears_at_once(&self, now: Time) -> bool {
        self.cut_in <= now && self.watch_delay.is_zero() && !self.drops_map
    }
}
