//! Individuals and moving range.
//!
//! `x ± L σ` with `σ = mean moving range / d2(2)`; the moving range has its centre at `d2 σ` and its limits at
//! `D3` and `D4` times that.

use super::baseline::d2_of_pairs;
use super::step::{Plot, Step, Stepper, UNBOUNDED, companion};

pub(super) fn step(stepper: &Stepper<'_>, last: &mut Option<f64>, index: u64, value: f64) -> Step {
    let (design, sigma) = (stepper.design, stepper.sigma());
    let mut step = stepper.place(Plot {
        index,
        value,
        statistic: value,
        center: stepper.center(),
        reach: design.sigmas * sigma,
        sd: sigma,
        bounds: UNBOUNDED,
    });
    let before = last.replace(value);
    // With fixed limits nobody has estimated a spread, so there is nothing to judge a moving range by.
    if design.fixed.is_none()
        && let Some(before) = before
        && let Ok(constants) = design.constants.range(2)
    {
        let center = d2_of_pairs(design.constants) * sigma;
        let reach = (constants.d4 - 1.0) * design.sigmas / 3.0 * center;
        step.companion = Some(companion(index, (value - before).abs(), center, reach));
    }
    step
}
