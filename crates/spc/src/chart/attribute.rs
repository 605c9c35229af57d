//! Counts: p and np (defectives, binomial), c and u (defects, Poisson). Where sizes differ each point has its own
//! limits.

use super::design::Kind;
use super::step::{Plot, Step, Stepper};

pub(super) fn step(stepper: &Stepper<'_>, index: u64, count: f64, size: f64) -> Step {
    let (rate, unit) = (stepper.center(), stepper.sigma());
    // What is plotted, its centre and its standard deviation, and the largest it can be.
    let (statistic, center, sd, most) = match stepper.design.kind {
        Kind::P => (count / size, rate, unit / size.sqrt(), 1.0),
        Kind::Np => (count, rate * size, unit * size.sqrt(), size),
        Kind::U => (count / size, rate, unit / size.sqrt(), f64::INFINITY),
        _ => (count, rate, unit, f64::INFINITY),
    };
    let reach = stepper.design.sigmas * sd;
    stepper.place(Plot { index, value: count, statistic, center, reach, sd, bounds: (0.0, most) })
}
