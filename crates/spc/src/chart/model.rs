//! What phase I learns: centre, σ, and how sure it is of them.

use serde::{Deserialize, Serialize};

use super::design::{Design, Kind, Sample, SampleError, usable};
use crate::linear::Cholesky;

/// How σ was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Estimator {
    /// Mean moving range of neighbours / d2(2).
    MovingRange,
    /// Ranges of subgroups / d2.
    Range,
    /// Standard deviations of subgroups / c4.
    StandardDeviation,
    /// Median of the absolute deviations from the median × 1.4826.
    MedianMad,
    /// Median range of subgroups / the median of the relative range.
    MedianRange,
    /// Median standard deviation of subgroups / the median of the relative standard deviation.
    MedianStandardDeviation,
    /// √(p(1 − p)).
    Binomial,
    /// √c.
    Poisson,
    /// The sample covariance matrix.
    Covariance,
    /// A person gave it.
    Given,
    /// It follows from limits that a person set.
    FixedLimits,
}

/// Centre and spread that points are judged against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The centre; none for T², and with one fixed limit and no target.
    pub center: Option<f64>,
    /// σ of a single value (for p and np √(p(1−p)), for c and u √centre); none where there is no centre.
    pub sigma: Option<f64>,
    /// How σ was found.
    pub estimator: Estimator,
    /// How many degrees of freedom the estimate of σ is worth; none where it was not estimated.
    pub freedom: Option<f64>,
    /// Means and covariance, T² only.
    pub vector: Option<Vector>,
}

/// The multivariate part of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vector {
    /// Mean of each variable.
    pub mean: Vec<f64>,
    /// The covariance matrix, factored.
    pub covariance: Cholesky,
    /// How many vectors it was learned from.
    pub count: u64,
    /// The upper limit for vectors of the baseline itself (beta form).
    pub limit_baseline: f64,
    /// The upper limit for new vectors (F form).
    pub limit_new: f64,
}

/// A baseline that nothing can be learned from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum LearnError {
    #[error("the baseline has {found} usable points; {needed} are needed")]
    TooFew { needed: u64, found: u64 },
    #[error("the baseline does not vary (σ is 0), so it gives no limits; take a longer baseline or give σ")]
    NoSpread,
    #[error(
        "more than half of the baseline is one and the same value, so its MAD is 0; use the classic estimator or give σ"
    )]
    NoMad,
    #[error("the baseline has {what} only, so it gives no limits; take a longer baseline or give the target")]
    Degenerate { what: &'static str },
    #[error(
        "variable {0} does not vary, or is a combination of the ones before it: the covariance cannot be inverted; leave it out"
    )]
    Singular(usize),
    #[error("point {index}: {error}")]
    Sample { index: u64, error: SampleError },
}

impl Model {
    /// The model of a design that leaves nothing to learn.
    pub(crate) fn given(design: &Design) -> Option<Self> {
        if design.needs_baseline() {
            return None;
        }
        let known = |center, sigma, estimator| Self { center, sigma, estimator, freedom: None, vector: None };
        if design.fixed.is_some() {
            let zones = design.zones_of_fixed();
            let estimator = if design.sd.is_some() { Estimator::Given } else { Estimator::FixedLimits };
            return Some(known(
                zones.map(|zone| zone.0).or(design.target),
                zones.map(|zone| zone.1),
                estimator,
            ));
        }
        let center = design.target?;
        Some(match design.kind {
            Kind::P | Kind::Np => known(Some(center), Some(binomial(center)), Estimator::Binomial),
            Kind::C | Kind::U => known(Some(center), Some(center.sqrt()), Estimator::Poisson),
            _ => known(Some(center), design.sd, Estimator::Given),
        })
    }

    /// Refuses a vector of another length than those that were learned from.
    pub(crate) fn check_sample(&self, sample: &Sample) -> Result<(), SampleError> {
        match (&self.vector, sample) {
            (Some(vector), Sample::Vector(values)) if vector.mean.len() != values.len() => {
                Err(SampleError::Dimension { wanted: vector.mean.len(), found: values.len() })
            }
            _ => Ok(()),
        }
    }

    /// Whether it fits the design; a stored one may have been damaged.
    pub(crate) fn is_sound(&self, design: &Design) -> bool {
        let numbers =
            self.center.is_none_or(usable) && self.sigma.is_none_or(|sigma| usable(sigma) && sigma > 0.0);
        let shape = match design.kind {
            Kind::T2 { .. } => self.vector.as_ref().is_some_and(|vector| {
                let count = vector.mean.len();
                vector.covariance.is_sound(count)
                    && vector.mean.iter().all(|mean| usable(*mean))
                    && vector.count > count as u64 + 1
                    && vector.limit_new > 0.0
                    && vector.limit_baseline > 0.0
            }),
            _ => design.fixed.is_some() || self.center.is_some() && self.sigma.is_some(),
        };
        numbers && shape
    }
}

pub(crate) fn binomial(p: f64) -> f64 {
    (p * (1.0 - p)).sqrt()
}
