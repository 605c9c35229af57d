//! Phase I: a baseline, taken a sample at a time, and what is estimated from it.

use std::collections::VecDeque;
use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::design::{Design, Kind, Sample, SampleError};
use super::model::{Estimator, LearnError, Model, Vector, binomial};
use super::step::{Phase, Stepper};
use super::t2;
use crate::constants::Constants;
use crate::linear::Cholesky;
use crate::numeric::{Moments, Sum, median, sum};

/// From the median absolute deviation of a normal distribution to its σ: 1/Φ⁻¹(3/4).
const MAD_TO_SIGMA: f64 = 1.482_602_218_505_602;
/// How much of the information of a normal sample the MAD keeps.
const MAD_EFFICIENCY: f64 = 0.3675;

/// What was learned.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Centre and spread.
    pub model: Model,
    /// Points of the baseline that were left out because they were beyond the limits; the first is 1.
    pub excluded: Vec<u64>,
}

/// Learns a model from a whole baseline.
///
/// ```
/// use phalanx_spc::chart::{Design, Kind, Sample, learn};
/// let baseline = [9.0, 11.0, 10.0, 12.0, 8.0].map(Sample::Value);
/// let model = learn(&Design::new(Kind::Imr), &baseline).unwrap().model;
/// assert_eq!(model.center, Some(10.0));
/// ```
pub fn learn(design: &Design, samples: &[Sample]) -> Result<Learned, LearnError> {
    let mut baseline = Baseline::new(design, samples.len() as u64);
    for (index, sample) in (1..).zip(samples) {
        design
            .check_sample(sample)
            .and_then(|()| baseline.check_dimension(sample))
            .map_err(|error| LearnError::Sample { index, error })?;
        baseline.add(design, sample);
    }
    baseline.finish(design)
}

/// A baseline under way. The classic estimators need only sums; the robust ones and exclusion need the samples, of
/// which the last `wanted` are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Baseline {
    Sums(Sums),
    Kept { samples: VecDeque<Sample>, wanted: u64 },
}

impl Baseline {
    pub(crate) fn new(design: &Design, wanted: u64) -> Self {
        if design.robust || design.exclude {
            Self::Kept { samples: VecDeque::new(), wanted }
        } else {
            Self::Sums(Sums::default())
        }
    }

    pub(crate) fn add(&mut self, design: &Design, sample: &Sample) {
        match self {
            Self::Sums(sums) => sums.add(design, sample),
            Self::Kept { samples, wanted } => {
                if samples.len() as u64 >= *wanted {
                    samples.pop_front();
                }
                samples.push_back(sample.clone());
            }
        }
    }

    /// Refuses a vector of another length than those before it.
    pub(crate) fn check_dimension(&self, sample: &Sample) -> Result<(), SampleError> {
        match (self.dimension(), sample) {
            (Some(wanted), Sample::Vector(values)) if wanted != values.len() => {
                Err(SampleError::Dimension { wanted, found: values.len() })
            }
            _ => Ok(()),
        }
    }

    /// How many variables the vectors so far have.
    fn dimension(&self) -> Option<usize> {
        match self {
            Self::Sums(sums) => (!sums.mean.is_empty()).then_some(sums.mean.len()),
            Self::Kept { samples, .. } => samples.front().and_then(|sample| match sample {
                Sample::Vector(values) => Some(values.len()),
                _ => None,
            }),
        }
    }

    /// Whether it could be a baseline of this design; a stored one may have been damaged.
    pub(crate) fn is_sound(&self, design: &Design) -> bool {
        match self {
            Self::Sums(sums) => {
                let variables = sums.mean.len();
                !design.robust
                    && !design.exclude
                    && sums.scatter.len() == variables
                    && sums.scatter.iter().all(|row| row.len() == variables)
            }
            Self::Kept { samples, wanted } => {
                let dimension = self.dimension();
                let fits = |sample: &Sample| match sample {
                    Sample::Vector(values) => Some(values.len()) == dimension,
                    _ => true,
                };
                (design.robust || design.exclude)
                    && samples.len() as u64 <= *wanted
                    && samples.iter().all(|sample| design.check_sample(sample).is_ok() && fits(sample))
            }
        }
    }

    pub(crate) fn finish(&self, design: &Design) -> Result<Learned, LearnError> {
        match self {
            Self::Sums(sums) => Ok(Learned { model: sums.model(design)?, excluded: Vec::new() }),
            Self::Kept { samples, .. } => {
                let samples: Vec<&Sample> = samples.iter().collect();
                exclude(design, &samples)
            }
        }
    }
}

/// Estimates, leaves out what is beyond the limits, and estimates again until nothing is.
fn exclude(design: &Design, samples: &[&Sample]) -> Result<Learned, LearnError> {
    let mut included = vec![true; samples.len()];
    loop {
        let model = estimate(design, samples, &included)?;
        let excluded =
            || (1..).zip(&included).filter(|(_, included)| !**included).map(|(index, _)| index).collect();
        if !design.exclude {
            return Ok(Learned { model, excluded: excluded() });
        }
        let out = beyond(design, &model, samples, &included);
        if out.is_empty() {
            return Ok(Learned { model, excluded: excluded() });
        }
        out.into_iter().for_each(|position| included[position] = false);
    }
}

fn estimate(design: &Design, samples: &[&Sample], included: &[bool]) -> Result<Model, LearnError> {
    if design.robust {
        let chosen: Vec<&Sample> = samples
            .iter()
            .zip(included)
            .filter(|(_, included)| **included)
            .map(|(sample, _)| *sample)
            .collect();
        return robust(design, &chosen);
    }
    let mut sums = Sums::default();
    for (sample, &included) in samples.iter().zip(included) {
        // A moving range does not reach across a point that was left out.
        if included { sums.add(design, sample) } else { sums.last = None }
    }
    sums.model(design)
}

/// The included samples beyond the limits. EWMA and CUSUM ask the individuals chart: their own points carry the past
/// along.
fn beyond(design: &Design, model: &Model, samples: &[&Sample], included: &[bool]) -> Vec<usize> {
    let kind = match design.kind {
        Kind::Ewma { .. } | Kind::Cusum { .. } => Kind::Imr,
        kind => kind,
    };
    let plain = Design { kind, ..design.clone() };
    let stepper = Stepper { design: &plain, model };
    let mut memory = stepper.start();
    let mut out = Vec::new();
    for (position, sample) in samples.iter().enumerate() {
        let step = stepper.step(&mut memory, position as u64 + 1, sample, Phase::One);
        // A large moving range has two causes to choose from; a large range or standard deviation has one.
        let companion = step.companion.as_ref().filter(|_| kind.is_grouped());
        let signals = step.point.is_beyond() || companion.is_some_and(super::Point::is_beyond);
        if included[position] && signals {
            out.push(position);
        }
    }
    out
}

/// Sums that the classic estimators need; which are used depends on the kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sums {
    /// How many samples.
    count: u64,
    /// Individual values; or the moments of counts.
    values: Moments,
    /// Moving ranges.
    #[serde(skip_serializing_if = "is_default")]
    ranges: Moments,
    /// The value before.
    #[serde(skip_serializing_if = "is_default")]
    last: Option<f64>,
    /// Sum of all values of subgroups; or of counts.
    #[serde(skip_serializing_if = "is_default")]
    total: Sum,
    /// Number of all values of subgroups; or sum of sizes.
    #[serde(skip_serializing_if = "is_default")]
    size: Sum,
    /// Sum of the weighted estimates of σ of the subgroups, and of their weights.
    #[serde(skip_serializing_if = "is_default")]
    spread: Sum,
    #[serde(skip_serializing_if = "is_default")]
    weight: Sum,
    /// Mean and scatter matrix of vectors.
    #[serde(skip_serializing_if = "is_default")]
    mean: Vec<f64>,
    #[serde(skip_serializing_if = "is_default")]
    scatter: Vec<Vec<f64>>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Sums {
    /// Takes a sample that the design has checked.
    fn add(&mut self, design: &Design, sample: &Sample) {
        self.count += 1;
        match sample {
            Sample::Value(value) => {
                self.values.push(*value);
                if let Some(last) = self.last.replace(*value) {
                    self.ranges.push((value - last).abs());
                }
            }
            Sample::Group(values) => {
                values.iter().for_each(|&value| self.total.add(value));
                self.size.add(values.len() as f64);
                if let Some((sigma, relative_variance)) = spread_of(design, values) {
                    self.spread.add(sigma / relative_variance);
                    self.weight.add(1.0 / relative_variance);
                }
            }
            Sample::Count { count, size } => {
                self.total.add(*count);
                self.size.add(*size);
            }
            Sample::Vector(values) => self.add_vector(values),
        }
    }

    fn add_vector(&mut self, values: &[f64]) {
        if self.mean.is_empty() {
            self.mean = vec![0.0; values.len()];
            self.scatter = vec![vec![0.0; values.len()]; values.len()];
        }
        let before: Vec<f64> = values.iter().zip(&self.mean).map(|(value, mean)| value - mean).collect();
        for (mean, apart) in self.mean.iter_mut().zip(&before) {
            *mean += apart / self.count as f64;
        }
        for (row, apart) in self.scatter.iter_mut().zip(&before) {
            for ((cell, value), mean) in row.iter_mut().zip(values).zip(&self.mean) {
                *cell += apart * (value - mean);
            }
        }
    }

    fn model(&self, design: &Design) -> Result<Model, LearnError> {
        match design.kind {
            Kind::Imr | Kind::Ewma { .. } | Kind::Cusum { .. } => self.individuals(design),
            Kind::XbarR | Kind::XbarS => self.subgroups(design),
            Kind::P | Kind::Np | Kind::C | Kind::U => self.counts(design),
            Kind::T2 { alpha } => self.vectors(alpha),
        }
    }

    fn individuals(&self, design: &Design) -> Result<Model, LearnError> {
        enough(self.count, 2)?;
        let mean = self.values.mean().unwrap_or_default();
        let range = self.ranges.mean().ok_or(LearnError::TooFew { needed: 2, found: 1 })?;
        let sigma = range / d2_of_pairs(design.constants);
        let freedom = freedom(moving_range_variance(self.ranges.count() as f64));
        spread(design, mean, sigma, Estimator::MovingRange, freedom)
    }

    fn subgroups(&self, design: &Design) -> Result<Model, LearnError> {
        enough(self.count, 2)?;
        let estimator =
            if design.kind == Kind::XbarR { Estimator::Range } else { Estimator::StandardDeviation };
        let (mean, weight) = (self.total.total() / self.size.total(), self.weight.total());
        spread(design, mean, self.spread.total() / weight, estimator, freedom(1.0 / weight))
    }

    fn counts(&self, design: &Design) -> Result<Model, LearnError> {
        enough(self.count, 2)?;
        let size = if design.kind == Kind::C { self.count as f64 } else { self.size.total() };
        let center = self.total.total() / size;
        let (sigma, estimator) = match design.kind {
            Kind::P | Kind::Np => (binomial(center), Estimator::Binomial),
            _ => (center.sqrt(), Estimator::Poisson),
        };
        if center == 0.0 {
            return Err(LearnError::Degenerate { what: "counts of 0" });
        }
        if sigma == 0.0 {
            return Err(LearnError::Degenerate { what: "defectives" });
        }
        Ok(Model { center: Some(center), sigma: Some(sigma), estimator, freedom: None, vector: None })
    }

    fn vectors(&self, alpha: f64) -> Result<Model, LearnError> {
        // The beta limits of phase I need a second degree of freedom besides those of the mean and the variables.
        enough(self.count, self.mean.len() as u64 + 2)?;
        let freedom = (self.count - 1) as f64;
        let matrix: Vec<Vec<f64>> =
            self.scatter.iter().map(|row| row.iter().map(|cell| cell / freedom).collect()).collect();
        let covariance = Cholesky::new(&matrix).map_err(|row| LearnError::Singular(row + 1))?;
        let (limit_baseline, limit_new) = t2::limits(self.count as f64, self.mean.len() as f64, alpha);
        let vector =
            Vector { mean: self.mean.clone(), covariance, count: self.count, limit_baseline, limit_new };
        Ok(Model {
            center: None,
            sigma: None,
            estimator: Estimator::Covariance,
            freedom: Some(freedom),
            vector: Some(vector),
        })
    }
}

/// σ from one subgroup and the relative variance of that estimate, so that subgroups of different sizes are weighted
/// by what they know. With equal sizes this is R̄/d2 and s̄/c4.
fn spread_of(design: &Design, values: &[f64]) -> Option<(f64, f64)> {
    match design.kind {
        Kind::XbarR => {
            let range = design.constants.range(values.len()).ok()?;
            Some((width(values) / range.d2, (range.d3 / range.d2).powi(2)))
        }
        _ => {
            let c4 = design.constants.deviation(values.len()).ok()?.c4;
            Some((deviation(values) / c4, (1.0 - c4 * c4) / (c4 * c4)))
        }
    }
}

/// Medians in the place of means.
fn robust(design: &Design, samples: &[&Sample]) -> Result<Model, LearnError> {
    enough(samples.len() as u64, 2)?;
    let count = samples.len() as f64;
    let (mut centers, mut spreads) = (Vec::new(), Vec::new());
    for sample in samples {
        match sample {
            Sample::Value(value) => centers.push(*value),
            Sample::Group(values) => {
                centers.push(mean(values));
                spreads.extend(match design.kind {
                    Kind::XbarR => {
                        design.constants.range(values.len()).map(|k| width(values) / k.median).ok()
                    }
                    _ => design.constants.deviation(values.len()).map(|k| deviation(values) / k.median).ok(),
                });
            }
            Sample::Count { .. } | Sample::Vector(_) => {}
        }
    }
    let center = median(&mut centers).unwrap_or_default();
    if design.kind.is_grouped() {
        let sigma = median(&mut spreads).unwrap_or_default();
        let estimator = if design.kind == Kind::XbarR {
            Estimator::MedianRange
        } else {
            Estimator::MedianStandardDeviation
        };
        // A median keeps 2/π of the information of a mean.
        let information: f64 = samples
            .iter()
            .filter_map(|sample| match sample {
                Sample::Group(values) => spread_of(design, values).map(|(_, variance)| 1.0 / variance),
                _ => None,
            })
            .sum();
        return spread(design, center, sigma, estimator, freedom(PI / 2.0 / information));
    }
    let mut apart: Vec<f64> = centers.iter().map(|value| (value - center).abs()).collect();
    let mad = median(&mut apart).unwrap_or_default();
    if mad == 0.0 && centers.iter().any(|value| *value != center) && design.sd.is_none() {
        return Err(LearnError::NoMad);
    }
    let freedom = freedom(1.0 / (2.0 * MAD_EFFICIENCY * count));
    spread(design, center, mad * MAD_TO_SIGMA, Estimator::MedianMad, freedom)
}

/// The model, with what the design already knows in the place of what was estimated.
fn spread(
    design: &Design,
    center: f64,
    sigma: f64,
    estimator: Estimator,
    freedom: f64,
) -> Result<Model, LearnError> {
    let (sigma, estimator, freedom) = match design.sd {
        Some(sd) => (sd, Estimator::Given, None),
        None => (sigma, estimator, Some(freedom)),
    };
    if sigma == 0.0 {
        return Err(LearnError::NoSpread);
    }
    Ok(Model {
        center: Some(design.target.unwrap_or(center)),
        sigma: Some(sigma),
        estimator,
        freedom,
        vector: None,
    })
}

fn enough(found: u64, needed: u64) -> Result<(), LearnError> {
    if found < needed { Err(LearnError::TooFew { needed, found }) } else { Ok(()) }
}

/// The degrees of freedom of a standard deviation with the same relative variance as an estimate of σ (Patnaik).
fn freedom(relative_variance: f64) -> f64 {
    0.5 / ((1.0 + 2.0 * relative_variance).sqrt() - 1.0)
}

/// The relative variance of the mean of `count` moving ranges of a normal series: neighbouring ranges share a value.
fn moving_range_variance(count: f64) -> f64 {
    let mean_square = 4.0 / PI;
    let own = 2.0 - mean_square;
    let shared = mean_square * (0.75f64.sqrt() + PI / 12.0 - 1.0);
    (own + 2.0 * shared * (count - 1.0) / count) / count / mean_square
}

pub(super) fn d2_of_pairs(constants: Constants) -> f64 {
    constants.range(2).map_or(2.0 / PI.sqrt(), |range| range.d2)
}

pub(super) fn mean(values: &[f64]) -> f64 {
    sum(values.iter().copied()) / values.len() as f64
}

pub(super) fn width(values: &[f64]) -> f64 {
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)));
    high - low
}

pub(super) fn deviation(values: &[f64]) -> f64 {
    let mut moments = Moments::default();
    moments.extend(values);
    moments.deviation().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_of_freedom_are_those_of_the_literature() {
        // A single standard deviation of n values has n − 1.
        let c4 = crate::constants::c4(20);
        assert!((freedom((1.0 - c4 * c4) / (c4 * c4)) - 19.0).abs() < 0.02);
        // Ranges of 5 keep about nine tenths of 4 k; Duncan's table has 36.5 for ten of them.
        let range = Constants::Exact.range(5).unwrap();
        assert!((freedom((range.d3 / range.d2).powi(2) / 10.0) - 36.5).abs() < 0.1);
        // Many moving ranges keep about 0.605 of n − 1.
        assert!((freedom(moving_range_variance(1e6)) / 1e6 - 0.605).abs() < 1e-3);
    }

    #[test]
    fn the_factor_of_the_mad_is_that_of_the_normal_distribution() {
        assert!((MAD_TO_SIGMA * crate::distribution::normal_quantile(0.75) - 1.0).abs() < 1e-14);
    }
}
