//! Exponentially weighted moving average.
//!
//! `z_i = λ x_i + (1 − λ) z_{i−1}`, starting at the centre; limits at
//! `centre ± L σ √(λ/(2−λ) · (1 − (1−λ)^{2i}))`, or without the last factor when asymptotic.

use serde::{Deserialize, Serialize};

use super::model::Model;
use super::step::{Plot, Step, Stepper, UNBOUNDED};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    average: f64,
    /// `(1−λ)^{2i}`.
    fading: f64,
}

impl Memory {
    pub(super) fn start(model: &Model) -> Self {
        Self { average: model.center.unwrap_or_default(), fading: 1.0 }
    }

    pub(super) fn numbers(&self) -> [f64; 2] {
        [self.average, self.fading]
    }

    pub(super) fn of_numbers([average, fading]: [f64; 2]) -> Option<Self> {
        Some(Self { average, fading }).filter(Self::is_sound)
    }

    pub(super) fn is_sound(&self) -> bool {
        self.average.is_finite() && (0.0..=1.0).contains(&self.fading)
    }
}

pub(super) fn step(
    stepper: &Stepper<'_>,
    memory: &mut Memory,
    index: u64,
    value: f64,
    lambda: f64,
    asymptotic: bool,
) -> Step {
    memory.average += lambda * (value - memory.average);
    memory.fading *= (1.0 - lambda) * (1.0 - lambda);
    let share = if asymptotic { 1.0 } else { 1.0 - memory.fading };
    let sd = stepper.sigma() * (lambda / (2.0 - lambda) * share).sqrt();
    stepper.place(Plot {
        index,
        value,
        statistic: memory.average,
        center: stepper.center(),
        reach: stepper.design.sigmas * sd,
        sd,
        bounds: UNBOUNDED,
    })
}
