//! Tabular CUSUM, two-sided.
//!
//! With `K = k σ` and `H = h σ`: `high_i = max(0, high_{i−1} + x_i − target − K)` and
//! `low_i = max(0, low_{i−1} + target − K − x_i)`; either above `H` is a signal. Both are in the units of the values.

use serde::{Deserialize, Serialize};

use super::step::{Step, Stepper};
use super::{Point, Reading, Statistic};
use crate::numeric::short;
use crate::rules::{Rule, Sides, Signal};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    high: f64,
    low: f64,
    /// For how many points each sum has been above 0: the shift probably began there.
    high_since: u64,
    low_since: u64,
}

impl Memory {
    pub(super) fn numbers(&self) -> [f64; 4] {
        [self.high, self.low, self.high_since as f64, self.low_since as f64]
    }

    pub(super) fn of_numbers([high, low, high_since, low_since]: [f64; 4]) -> Option<Self> {
        // The cast saturates, and gives 0 for what is no number.
        let memory = Self { high, low, high_since: high_since as u64, low_since: low_since as u64 };
        Some(memory).filter(Self::is_sound)
    }

    pub(super) fn is_sound(&self) -> bool {
        self.high.is_finite() && self.low.is_finite() && self.high >= 0.0 && self.low >= 0.0
    }
}

/// A signal lists at most so many of the points behind it.
const MOST_POINTS: u64 = 100;

pub(super) fn step(
    stepper: &Stepper<'_>,
    memory: &mut Memory,
    index: u64,
    value: f64,
    k: f64,
    h: f64,
) -> Step {
    let (center, sigma) = (stepper.center(), stepper.sigma());
    let (allowance, interval) = (k * sigma, h * sigma);
    grow(&mut memory.high, &mut memory.high_since, value - center - allowance);
    grow(&mut memory.low, &mut memory.low_since, center - allowance - value);
    let sides = stepper.design.sides;
    let mut signals = Vec::new();
    if sides != Sides::Lower && memory.high > interval {
        signals.push(signal(index, memory.high, memory.high_since, interval, "upper", "risen"));
    }
    if sides != Sides::Upper && memory.low > interval {
        signals.push(signal(index, memory.low, memory.low_since, interval, "lower", "fallen"));
    }
    let point = Point {
        index,
        value: Reading::One(value),
        statistic: Statistic::Sums { high: memory.high, low: memory.low },
        center: Some(center),
        lcl: None,
        ucl: Some(interval),
    };
    Step { point, mark: None, signals, companion: None }
}

fn grow(sum: &mut f64, since: &mut u64, excess: f64) {
    *sum = (*sum + excess).max(0.0);
    *since = if *sum > 0.0 { *since + 1 } else { 0 };
}

fn signal(index: u64, sum: f64, since: u64, interval: f64, name: &str, moved: &str) -> Signal {
    let first = (index + 1).saturating_sub(since.max(1)).max(1);
    let message = format!(
        "The {name} sum {} at point {index} exceeds {}: the mean has probably {moved} since point {first}.",
        short(sum),
        short(interval)
    );
    let listed = first.max((index + 1).saturating_sub(MOST_POINTS));
    Signal { index, rule: Rule::Limits, points: (listed..=index).collect(), message }
}
