//! Whole charts.

use std::ops::RangeInclusive;

use serde::{Serialize, Serializer};

use super::baseline::{Learned, learn};
use super::design::{Design, DesignError, Sample, SampleError};
use super::model::{Estimator, LearnError, Model};
use super::step::{Phase, Stepper};
use super::{Kind, Point};
use crate::capability::{Capability, CapabilityError, Specification};
use crate::rules::{Mark, Signal, beyond, scan};

/// A chart that cannot be drawn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ChartError {
    #[error(transparent)]
    Design(#[from] DesignError),
    #[error("no limits can be learned: {0}")]
    Learn(#[from] LearnError),
    #[error("point {index}: {error}")]
    Sample { index: u64, error: SampleError },
    #[error("there are no points")]
    Empty,
    #[error("the baseline {first}..{last} does not lie within the {count} points")]
    Baseline { first: u64, last: u64, count: u64 },
    #[error(transparent)]
    Capability(#[from] CapabilityError),
}

/// The centre of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Center {
    /// One number; none where nobody knows it.
    One(Option<f64>),
    /// The vector of means (T²).
    Many(Vec<f64>),
}

/// A drawn chart. It serialises to the JSON that the command line prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// Which chart.
    pub chart: &'static str,
    /// The centre, where it is the same for all points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub center: Option<Center>,
    /// σ of a single value; for p and np √(p(1−p)), for c and u √centre.
    pub sigma: Option<f64>,
    /// How σ was found.
    pub estimator: Estimator,
    /// The lower limit, where it is the same for all points (which may be: none).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lcl: Option<Option<f64>>,
    /// The upper limit, where it is the same for all points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ucl: Option<Option<f64>>,
    /// The points.
    #[serde(serialize_with = "points_of_a_chart")]
    pub points: Vec<Point>,
    /// What the rules found, in the order of the points.
    pub signals: Vec<Signal>,
    /// Points of the baseline that were left out of the estimates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<u64>,
    /// The chart of the spread beside the chart of the location.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub companion: Option<Box<Chart>>,
    /// What the process can do, where a specification was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<Capability>,
}

/// The centre stands at a point only where points differ in it.
fn points_of_a_chart<S: Serializer>(points: &[Point], serializer: S) -> Result<S::Ok, S::Error> {
    let shared = common(points, |point| point.center).is_some();
    serializer.collect_seq(points.iter().map(|point| {
        let center = point.center.filter(|_| !shared);
        Point { center, ..point.clone() }
    }))
}

/// Draws a chart: learns from the baseline (all points without one), then judges every point.
///
/// The baseline counts from 1 and includes both ends. Where the design leaves nothing to learn it is not used.
///
/// ```
/// use phalanx_spc::chart::{analyse, Design, Kind, Sample};
/// let samples = [9.0, 11.0, 10.0, 12.0, 8.0, 10.0, 11.0, 30.0].map(Sample::Value);
/// let chart = analyse(&Design::new(Kind::Imr), &samples, Some(1..=7)).unwrap();
/// assert_eq!(chart.signals[0].message, "Point 8 at 30 is above the upper limit 15.4602.");
/// ```
pub fn analyse(
    design: &Design,
    samples: &[Sample],
    baseline: Option<RangeInclusive<u64>>,
) -> Result<Chart, ChartError> {
    let (learned, baseline) = phase_one(design, samples, baseline)?;
    let in_baseline = |index: u64| baseline.contains(&index) && !learned.excluded.contains(&index);
    let phase = |index| if in_baseline(index) { Phase::One } else { Phase::Two };
    let mut chart = draw(design, &learned.model, samples, phase)?;
    chart.excluded = learned.excluded;
    Ok(chart)
}

/// Draws a chart as [`analyse`] does and adds what the process can do: Cp and Cpk by the σ of the chart, Pp and Ppk by
/// the overall standard deviation, both of the points of the baseline.
pub fn analyse_capability(
    design: &Design,
    samples: &[Sample],
    baseline: Option<RangeInclusive<u64>>,
    specification: Specification,
) -> Result<Chart, ChartError> {
    let mut chart = analyse(design, samples, baseline.clone())?;
    let (learned, baseline) = phase_one(design, samples, baseline)?;
    let values: Vec<f64> = (1..)
        .zip(samples)
        .filter(|(index, _)| baseline.contains(index) && !learned.excluded.contains(index))
        .flat_map(|(_, sample)| match sample {
            Sample::Value(value) => std::slice::from_ref(value),
            Sample::Group(values) => values.as_slice(),
            Sample::Count { .. } | Sample::Vector(_) => &[],
        })
        .copied()
        .collect();
    let within = learned.model.sigma.zip(Some(learned.model.freedom));
    chart.capability = Some(Capability::new(&values, within, specification)?);
    Ok(chart)
}

/// Judges points against limits that are already known (phase II).
pub fn judge(design: &Design, model: &Model, samples: &[Sample]) -> Result<Chart, ChartError> {
    design.check()?;
    draw(design, model, samples, |_| Phase::Two)
}

/// What was learned, and the points it was learned from. Where nothing is to be learned these are all.
fn phase_one(
    design: &Design,
    samples: &[Sample],
    baseline: Option<RangeInclusive<u64>>,
) -> Result<(Learned, RangeInclusive<u64>), ChartError> {
    design.check()?;
    let count = samples.len() as u64;
    if count == 0 {
        return Err(ChartError::Empty);
    }
    let baseline = baseline.unwrap_or(1..=count);
    let (first, last) = (*baseline.start(), *baseline.end());
    if first == 0 || first > last || last > count {
        return Err(ChartError::Baseline { first, last, count });
    }
    if let Some(model) = Model::given(design) {
        return Ok((Learned { model, excluded: Vec::new() }, baseline));
    }
    let shift = |index: u64| index + first - 1;
    let mut learned =
        learn(design, &samples[first as usize - 1..last as usize]).map_err(|error| match error {
            LearnError::Sample { index, error } => ChartError::Sample { index: shift(index), error },
            error => ChartError::Learn(error),
        })?;
    learned.excluded.iter_mut().for_each(|index| *index = shift(*index));
    Ok((learned, baseline))
}

fn draw(
    design: &Design,
    model: &Model,
    samples: &[Sample],
    phase: impl Fn(u64) -> Phase,
) -> Result<Chart, ChartError> {
    if samples.is_empty() {
        return Err(ChartError::Empty);
    }
    let stepper = Stepper { design, model };
    let mut memory = stepper.start();
    let (mut points, mut companions) = (Vec::with_capacity(samples.len()), Vec::new());
    let (mut marks, mut signals): (Vec<(Mark, _, _)>, _) = (Vec::new(), Vec::new());
    for (index, sample) in (1..).zip(samples) {
        design
            .check_sample(sample)
            .and_then(|()| model.check_sample(sample))
            .map_err(|error| ChartError::Sample { index, error })?;
        let step = stepper.step(&mut memory, index, sample, phase(index));
        marks.extend(step.mark.map(|mark| (mark, step.point.lcl, step.point.ucl)));
        signals.extend(step.signals);
        companions.extend(step.companion);
        points.push(step.point);
    }
    signals.extend(scan(&design.rules, design.sides, &marks));
    let mut chart = assemble(design.kind.name(), model, points, signals);
    if let Some(vector) = &model.vector {
        chart.center = Some(Center::Many(vector.mean.clone()));
    }
    chart.companion = companion_name(design.kind).filter(|_| !companions.is_empty()).map(|name| {
        let signals = companions.iter().filter_map(beyond).collect();
        Box::new(assemble(name, model, companions, signals))
    });
    Ok(chart)
}

fn companion_name(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Imr => Some("mr"),
        Kind::XbarR => Some("r"),
        Kind::XbarS => Some("s"),
        _ => None,
    }
}

fn assemble(chart: &'static str, model: &Model, points: Vec<Point>, signals: Vec<Signal>) -> Chart {
    Chart {
        chart,
        center: common(&points, |point| point.center).map(Center::One),
        sigma: model.sigma,
        estimator: model.estimator,
        lcl: common(&points, |point| point.lcl),
        ucl: common(&points, |point| point.ucl),
        points,
        signals,
        excluded: Vec::new(),
        companion: None,
        capability: None,
    }
}

/// What all points have in common, if they do.
fn common<T: PartialEq>(points: &[Point], part: impl Fn(&Point) -> T) -> Option<T> {
    let first = part(points.first()?);
    points.iter().all(|point| part(point) == first).then_some(first)
}
