//! Hotelling's T² of individual vectors.
//!
//! `T² = (x − x̄)ᵀ S⁻¹ (x − x̄)` of p variables, learned from m vectors. A vector of the baseline itself is judged by
//! `(m−1)²/m · B(1−α; p/2, (m−p−1)/2)`, a new one by `p(m+1)(m−1)/(m²−mp) · F(1−α; p, m−p)`.

use super::step::{Phase, Step, Stepper};
use super::{Point, Reading, Statistic};
use crate::distribution::{beta_quantile, f_quantile};
use crate::rules::Mark;

pub(super) fn step(stepper: &Stepper<'_>, index: u64, values: &[f64], phase: Phase) -> Step {
    let Some(vector) = &stepper.model.vector else { unreachable!("T² has learned a vector") };
    let apart: Vec<f64> = values.iter().zip(&vector.mean).map(|(value, mean)| value - mean).collect();
    let statistic = vector.covariance.distance(&apart);
    let ucl = match phase {
        Phase::One => vector.limit_baseline,
        Phase::Two => vector.limit_new,
    };
    let point = Point {
        index,
        value: Reading::Many(values.to_vec()),
        statistic: Statistic::One(statistic),
        center: None,
        lcl: Some(0.0),
        ucl: Some(ucl),
    };
    Step { point, mark: Some(Mark { statistic, z: 0.0 }), signals: Vec::new(), companion: None }
}

/// The upper limits of baseline vectors and of new ones, for `count` baseline vectors of `variables`.
pub(super) fn limits(count: f64, variables: f64, alpha: f64) -> (f64, f64) {
    let (m, p) = (count, variables);
    let baseline = (m - 1.0).powi(2) / m * beta_quantile(p / 2.0, (m - p - 1.0) / 2.0, 1.0 - alpha);
    let new = p * (m + 1.0) * (m - 1.0) / (m * m - m * p) * f_quantile(p, m - p, 1.0 - alpha);
    (baseline, new)
}
