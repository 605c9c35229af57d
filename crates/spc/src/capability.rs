//! How a process fits its specification: Cp and Cpk with σ as the chart estimates it (short term), Pp and Ppk with the
//! standard deviation of all values (long term).
//!
//! Intervals are for 95 % confidence: of Cp and Pp from the χ² distribution, of Cpk and Ppk by Bissell's approximation.

use serde::Serialize;

use crate::distribution::{chi_squared_quantile, normal_quantile};
use crate::numeric::Moments;

/// What the customer accepts; at least one limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Specification {
    lsl: Option<f64>,
    usl: Option<f64>,
}

/// Specification limits or data that give no index.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CapabilityError {
    #[error("capability needs a specification limit, lower or upper")]
    NoLimit,
    #[error("the specification limit {0} is not a finite number")]
    NotFinite(f64),
    #[error("the lower specification limit {lsl} must be below the upper one {usl}")]
    LimitsCross { lsl: f64, usl: f64 },
    #[error("capability is for measured values; charts of counts and of vectors have none")]
    NotMeasured,
    #[error("capability needs at least 2 values that differ")]
    NoSpread,
}

/// An index with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Index {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub lower: f64,
    /// Upper end of the interval.
    pub upper: f64,
}

/// The four indices; Cp and Pp need both limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Capability {
    /// Width of the specification over 6 σ, short term.
    pub cp: Option<Index>,
    /// Distance of the mean to the nearer limit over 3 σ, short term.
    pub cpk: Index,
    /// As Cp, long term.
    pub pp: Option<Index>,
    /// As Cpk, long term.
    pub ppk: Index,
}

impl Specification {
    /// Takes one limit or both.
    pub fn new(lsl: Option<f64>, usl: Option<f64>) -> Result<Self, CapabilityError> {
        if let Some(&limit) = [lsl, usl].iter().flatten().find(|limit| !limit.is_finite()) {
            return Err(CapabilityError::NotFinite(limit));
        }
        match (lsl, usl) {
            (None, None) => Err(CapabilityError::NoLimit),
            (Some(lsl), Some(usl)) if lsl >= usl => Err(CapabilityError::LimitsCross { lsl, usl }),
            _ => Ok(Self { lsl, usl }),
        }
    }

    /// (USL − LSL) / 6σ, from a σ worth `freedom` degrees of freedom (none: σ is known).
    ///
    /// ```
    /// use phalanx_spc::capability::Specification;
    /// // Twenty values with s = 1.75 between 38 and 62: 2.29, between 1.57 and 3.01.
    /// let cp = Specification::new(Some(38.0), Some(62.0)).unwrap().spread(1.75, Some(19.0)).unwrap();
    /// assert!((cp.value - 2.29).abs() < 0.005);
    /// assert!((cp.lower - 1.57).abs() < 0.01 && (cp.upper - 3.01).abs() < 0.005);
    /// ```
    pub fn spread(&self, sigma: f64, freedom: Option<f64>) -> Option<Index> {
        let value = (self.usl? - self.lsl?) / (6.0 * sigma);
        let end =
            |p| freedom.map_or(value, |freedom| value * (chi_squared_quantile(freedom, p) / freedom).sqrt());
        Some(Index { value, lower: end(TAIL), upper: end(1.0 - TAIL) })
    }

    /// The distance of `mean`, taken over `count` values, to the nearer limit, in 3 σ.
    pub fn nearer(&self, mean: f64, count: f64, sigma: f64, freedom: Option<f64>) -> Index {
        let above = self.usl.map(|usl| (usl - mean) / (3.0 * sigma));
        let below = self.lsl.map(|lsl| (mean - lsl) / (3.0 * sigma));
        let value = above.into_iter().chain(below).fold(f64::INFINITY, f64::min);
        bissell(value, count, freedom)
    }
}

impl Capability {
    /// The indices of some values. `within` is the σ of their chart and its degrees of freedom (none: σ is known).
    pub fn new(
        values: &[f64],
        within: Option<(f64, Option<f64>)>,
        specification: Specification,
    ) -> Result<Self, CapabilityError> {
        let Some((sigma, within)) = within.filter(|_| !values.is_empty()) else {
            return Err(CapabilityError::NotMeasured);
        };
        let mut moments = Moments::default();
        moments.extend(values);
        let (Some(mean), Some(deviation)) = (moments.mean(), moments.deviation().filter(|s| *s > 0.0)) else {
            return Err(CapabilityError::NoSpread);
        };
        let count = moments.count() as f64;
        Ok(Self {
            cp: specification.spread(sigma, within),
            cpk: specification.nearer(mean, count, sigma, within),
            pp: specification.spread(deviation, Some(count - 1.0)),
            ppk: specification.nearer(mean, count, deviation, Some(count - 1.0)),
        })
    }
}

/// What is left on each side of a 95 % interval.
const TAIL: f64 = 0.025;

/// `C (1 ± z √(1/(9 n C²) + 1/(2ν)))`, written so that it also holds at C = 0.
fn bissell(value: f64, count: f64, freedom: Option<f64>) -> Index {
    let of_sigma = freedom.map_or(0.0, |freedom| value * value / (2.0 * freedom));
    let reach = normal_quantile(1.0 - TAIL) * (1.0 / (9.0 * count) + of_sigma).sqrt();
    Index { value, lower: value - reach, upper: value + reach }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Design, Kind, Sample, analyse_capability};

    fn near(actual: f64, expected: f64, tolerance: f64) {
        assert!((actual - expected).abs() < tolerance, "{actual} is not {expected}");
    }

    #[test]
    fn intervals_follow_their_formulas() {
        let specification = Specification::new(Some(38.0), Some(62.0)).unwrap();
        let cp = specification.spread(1.75, Some(19.0)).unwrap();
        near(cp.value, 2.29, 0.005);
        // The book multiplies the rounded 2.29, so its ends are rounded twice.
        near(cp.lower, 1.57, 0.01);
        near(cp.upper, 3.01, 0.005);
        // 1.33 (1 ± 1.96 √(1/(9·20·1.33²) + 1/(2·19))), by hand.
        let cpk = bissell(1.33, 20.0, Some(19.0));
        near(cpk.lower, 0.8826, 5e-4);
        near(cpk.upper, 1.7774, 5e-4);
    }

    #[test]
    fn indices_of_a_chart_use_its_sigma_and_the_overall_one() {
        let values = [49.6, 47.6, 49.9, 51.3, 47.8, 51.2, 52.6, 52.4, 53.6, 52.1];
        let samples = values.map(Sample::Value);
        let specification = Specification::new(Some(40.0), Some(60.0)).unwrap();
        let chart = analyse_capability(&Design::new(Kind::Imr), &samples, None, specification).unwrap();
        let found = chart.capability.unwrap();
        let sigma = (16.9 / 9.0) / (2.0 / std::f64::consts::PI.sqrt());
        near(found.cp.unwrap().value, 20.0 / (6.0 * sigma), 1e-12);
        near(found.cpk.value, (60.0 - 50.81) / (3.0 * sigma), 1e-12);
        let s = (values.iter().map(|x| (x - 50.81f64).powi(2)).sum::<f64>() / 9.0).sqrt();
        near(found.pp.unwrap().value, 20.0 / (6.0 * s), 1e-12);
        near(found.ppk.value, (60.0 - 50.81) / (3.0 * s), 1e-12);
        for index in [found.cp.unwrap(), found.cpk, found.pp.unwrap(), found.ppk] {
            assert!(index.lower < index.value && index.value < index.upper);
        }
    }

    #[test]
    fn one_limit_gives_no_cp_and_a_mean_beyond_it_a_negative_cpk() {
        let upper = Specification::new(None, Some(10.0)).unwrap();
        assert_eq!(upper.spread(1.0, None), None);
        near(upper.nearer(13.0, 25.0, 1.0, None).value, -1.0, 1e-12);
    }

    #[test]
    fn a_sigma_that_is_known_leaves_no_doubt_about_cp_and_only_that_of_the_mean_about_cpk() {
        let specification = Specification::new(Some(-6.0), Some(6.0)).unwrap();
        let found = Capability::new(&[-1.0, 0.0, 1.0, 0.0], Some((1.0, None)), specification).unwrap();
        let cp = found.cp.unwrap();
        assert_eq!((cp.value, cp.lower, cp.upper), (2.0, 2.0, 2.0));
        near(found.cpk.upper - found.cpk.value, 1.96 / 6.0, 1e-4);
        assert!(found.ppk.upper - found.ppk.lower > found.cpk.upper - found.cpk.lower);
    }

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        assert_eq!(Specification::new(None, None), Err(CapabilityError::NoLimit));
        let crossed = CapabilityError::LimitsCross { lsl: 2.0, usl: 1.0 };
        assert_eq!(Specification::new(Some(2.0), Some(1.0)), Err(crossed));
        assert!(Specification::new(Some(f64::NAN), None).is_err());
        let counts = [3.0, 4.0].map(|count| Sample::Count { count, size: 1.0 });
        let specification = Specification::new(None, Some(9.0)).unwrap();
        let refused = analyse_capability(&Design::new(Kind::C), &counts, None, specification);
        assert_eq!(refused.unwrap_err(), CapabilityError::NotMeasured.into());
    }
}
