//! Faults that are known because they are made here.

use std::collections::BTreeMap;

use crate::chamber::Indicator;
use crate::random::Random;
use crate::strategy::BASELINE;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The level jumps by so many deviations, and stays there.
    Shift(f64),
    /// The level creeps away by so many deviations each run.
    Drift(f64),
    /// A single run is off by so many deviations.
    Spike(f64),
    /// The sensor shows the same value all the time.
    Stuck,
}

impl FaultKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shift(_) => "shift",
            Self::Drift(_) => "drift",
            Self::Spike(_) => "spike",
            Self::Stuck => "stuck",
        }
    }
}

/// A fault of a chamber.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// On which chart it is seen.
    pub indicator: Indicator,
    /// The first run that has it.
    pub from: u64,
}

impl Fault {
    /// By how many deviations this run's level is off.
    pub(crate) fn offset(&self, run: u64) -> f64 {
        let Some(since) = run.checked_sub(self.from) else { return 0.0 };
        match self.kind {
            FaultKind::Shift(sigmas) => sigmas,
            FaultKind::Drift(sigmas) => sigmas * (since + 1) as f64,
            FaultKind::Spike(sigmas) if since == 0 => sigmas,
            FaultKind::Spike(_) | FaultKind::Stuck => 0.0,
        }
    }

    /// Whether the sensor is stuck in this run.
    pub(crate) fn is_stuck(&self, run: u64) -> bool {
        self.kind == FaultKind::Stuck && run >= self.from
    }
}

/// Which chambers have a fault: a quarter of them, each kind about as often as the others.
pub(crate) fn faulty(random: &mut Random, chambers: usize) -> BTreeMap<usize, Fault> {
    let mut left: Vec<usize> = (0..chambers).collect();
    (0..chambers / 4)
        .map(|turn| {
            let chamber = left.swap_remove(random.below(left.len()));
            let side = if random.unit() < 0.5 { -1.0 } else { 1.0 };
            let level = if random.unit() < 0.5 { Indicator::Power } else { Indicator::Pressure };
            let (kind, indicator) = match turn % 4 {
                0 => (FaultKind::Shift(side * random.between(1.5, 3.0)), level),
                1 => (FaultKind::Drift(side * random.between(0.2, 0.5)), level),
                2 => (FaultKind::Spike(side * random.between(6.0, 9.0)), level),
                _ => (FaultKind::Stuck, Indicator::Noise),
            };
            // Once the limits are learned.
            let from = BASELINE + 2 + random.below(10) as u64;
            (chamber, Fault { kind, indicator, from })
        })
        .collect()
}
