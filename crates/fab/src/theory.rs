//! How many false alarms the rules give by theory, from the true parameters and the limits in force.

use statrs::distribution::{ChiSquared, ContinuousCDF as _, DiscreteCDF as _, Normal, Poisson};

use crate::chamber::Truth;

/// Limits, as they were in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The centre line.
    pub center: f64,
    /// The deviation they were set by.
    pub sigma: f64,
    /// The lower limit, where there is one.
    pub lcl: Option<f64>,
    /// The upper limit, where there is one.
    pub ucl: Option<f64>,
}

/// How probable it is that a healthy run raises an alarm for a point beyond the limits.
///
/// A condition that persists raises one alarm: the run is beyond, and the one before it was not.
///
/// ```
/// use phalanx_fab::{Truth, theory::{Limits, raises_limits}};
///
/// let limits = Limits { center: 10.0, sigma: 1.0, lcl: Some(7.0), ucl: Some(13.0) };
/// let p = raises_limits(Truth::Normal { mean: 10.0, sigma: 1.0 }, &limits);
/// assert!((p - 0.0027).abs() < 1e-4);
/// ```
pub fn raises_limits(truth: Truth, limits: &Limits) -> f64 {
    let below = limits.lcl.map_or(0.0, |lcl| cdf(truth, lcl));
    let above = limits.ucl.map_or(0.0, |ucl| 1.0 - cdf(truth, ucl));
    let beyond = below + above;
    beyond * (1.0 - beyond)
}

fn cdf(truth: Truth, x: f64) -> f64 {
    match truth {
        Truth::Normal { mean, sigma } => Normal::new(mean, sigma).map_or(0.0, |normal| normal.cdf(x)),
        Truth::Deviation { values, sigma } if x > 0.0 => {
            let freedom = (values - 1) as f64;
            ChiSquared::new(freedom).map_or(0.0, |chi| chi.cdf(freedom * (x / sigma).powi(2)))
        }
        Truth::Deviation { .. } => 0.0,
    }
}

/// How probable it is, in the long run, that a healthy run raises an alarm of the exponentially weighted moving average:
/// it is beyond its own limits, and was not before.
///
/// The average of the run before is normal around the true mean; what it is now follows from it and one new value.
pub fn raises_ewma(truth: Truth, limits: &Limits, lambda: f64, sigmas: f64) -> f64 {
    const STEPS: usize = 400;
    let Truth::Normal { mean, sigma } = truth else { return 0.0 };
    let shrink = (lambda / (2.0 - lambda)).sqrt();
    let half = sigmas * limits.sigma * shrink;
    let (low, high) = (limits.center - half, limits.center + half);
    let (Ok(before), Ok(new)) = (Normal::new(mean, sigma * shrink), Normal::new(mean, sigma)) else {
        return 0.0;
    };
    let beyond = |average: f64| {
        // λ·x + (1−λ)·average beyond a limit, for the new value x.
        let limit = |edge: f64| (edge - (1.0 - lambda) * average) / lambda;
        new.cdf(limit(low)) + 1.0 - new.cdf(limit(high))
    };
    // By the midpoint rule over what the average may have been inside the limits.
    let width = (high - low) / STEPS as f64;
    (0..STEPS)
        .map(|step| {
            let (left, right) = (low + step as f64 * width, low + (step + 1) as f64 * width);
            (before.cdf(right) - before.cdf(left)) * beyond((left + right) / 2.0)
        })
        .sum()
}

/// The number of events that is exceeded with a probability of at most 0.1 % when so many are expected.
///
/// ```
/// # use phalanx_fab::theory::poisson_bound;
/// assert_eq!(poisson_bound(0.0), 0);
/// assert_eq!(poisson_bound(1.0), 5);
/// assert_eq!(poisson_bound(10.0), 21);
/// ```
pub fn poisson_bound(expected: f64) -> u64 {
    let Ok(poisson) = Poisson::new(expected) else { return 0 };
    (0..).find(|&count| poisson.cdf(count) >= 0.999).unwrap_or_default()
}
