//! X-bar/R and X-bar/S; subgroups may differ in size, then each point has its own limits.

use super::baseline::{deviation, mean, width};
use super::design::Kind;
use super::model::Estimator;
use super::step::{Plot, Step, Stepper, UNBOUNDED, companion};

pub(super) fn step(stepper: &Stepper<'_>, index: u64, values: &[f64]) -> Step {
    let (design, sigma) = (stepper.design, stepper.sigma());
    let constants = design.constants;
    // Factors for 3 σ: from the expected spread of a subgroup to the limits of its mean and of its own spread.
    let (spread, expected, to_mean, to_upper) = match design.kind {
        Kind::XbarR => match constants.range(values.len()) {
            Ok(range) => (width(values), range.d2 * sigma, range.a2, range.d4),
            Err(error) => unreachable!("a checked subgroup has constants: {error}"),
        },
        _ => match constants.deviation(values.len()) {
            Ok(factors) => (deviation(values), factors.c4 * sigma, factors.a3, factors.b4),
            Err(error) => unreachable!("a checked subgroup has constants: {error}"),
        },
    };
    let (statistic, sd) = (mean(values), sigma / (values.len() as f64).sqrt());
    let width = design.sigmas / 3.0;
    // A σ that was given needs no table on the way to the limits.
    let reach = match stepper.model.estimator {
        Estimator::Given => design.sigmas * sd,
        _ => width * to_mean * expected,
    };
    let mut step = stepper.place(Plot {
        index,
        value: statistic,
        statistic,
        center: stepper.center(),
        reach,
        sd,
        bounds: UNBOUNDED,
    });
    step.companion = Some(companion(index, spread, expected, width * (to_upper - 1.0) * expected));
    step
}
