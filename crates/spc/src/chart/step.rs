//! One point: from a sample to what is plotted, with its limits. The same for a whole chart and a point at a time.

use serde::{Deserialize, Serialize};

use super::design::{Design, Fixed, Kind, Sample};
use super::model::Model;
use super::{Point, Reading, Statistic, attribute, cusum, ewma, individuals, subgroups, t2};
use crate::rules::{Mark, Sides, Signal};

/// Whether a point was part of the baseline; only T² makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    One,
    Two,
}

/// What a chart carries from point to point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Memory {
    Nothing,
    Last(Option<f64>),
    Ewma(ewma::Memory),
    Cusum(cusum::Memory),
}

/// A placed point.
pub(crate) struct Step {
    pub(crate) point: Point,
    /// For the run rules; none where the chart judges by itself.
    pub(crate) mark: Option<Mark>,
    /// What the chart itself has to say.
    pub(crate) signals: Vec<Signal>,
    pub(crate) companion: Option<Point>,
}

pub(crate) struct Stepper<'a> {
    pub(crate) design: &'a Design,
    pub(crate) model: &'a Model,
}

impl Stepper<'_> {
    pub(crate) fn start(&self) -> Memory {
        match self.design.kind {
            Kind::Imr => Memory::Last(None),
            Kind::Ewma { .. } => Memory::Ewma(ewma::Memory::start(self.model)),
            Kind::Cusum { .. } => Memory::Cusum(cusum::Memory::default()),
            _ => Memory::Nothing,
        }
    }

    /// Places a sample that the design has checked.
    pub(crate) fn step(&self, memory: &mut Memory, index: u64, sample: &Sample, phase: Phase) -> Step {
        match (self.design.kind, sample, memory) {
            (Kind::Imr, Sample::Value(value), Memory::Last(last)) => {
                individuals::step(self, last, index, *value)
            }
            (Kind::Ewma { lambda, asymptotic }, Sample::Value(value), Memory::Ewma(memory)) => {
                ewma::step(self, memory, index, *value, lambda, asymptotic)
            }
            (Kind::Cusum { k, h }, Sample::Value(value), Memory::Cusum(memory)) => {
                cusum::step(self, memory, index, *value, k, h)
            }
            (Kind::XbarR | Kind::XbarS, Sample::Group(values), _) => subgroups::step(self, index, values),
            (_, &Sample::Count { count, size }, _) => attribute::step(self, index, count, size),
            (Kind::T2 { .. }, Sample::Vector(values), _) => t2::step(self, index, values, phase),
            (kind, ..) => unreachable!("a checked sample fits its chart ({})", kind.name()),
        }
    }

    /// Whether a memory is one of this chart; a stored one may have been damaged.
    pub(crate) fn fits(&self, memory: &Memory) -> bool {
        match (self.start(), memory) {
            (Memory::Nothing, Memory::Nothing) | (Memory::Last(_), Memory::Last(None)) => true,
            (Memory::Last(_), Memory::Last(Some(last))) => last.is_finite(),
            (Memory::Ewma(_), Memory::Ewma(memory)) => memory.is_sound(),
            (Memory::Cusum(_), Memory::Cusum(memory)) => memory.is_sound(),
            _ => false,
        }
    }

    pub(crate) fn center(&self) -> f64 {
        self.model.center.unwrap_or_default()
    }

    pub(crate) fn sigma(&self) -> f64 {
        self.model.sigma.unwrap_or_default()
    }

    /// A point with limits `reach` on both sides of `center`, never outside `bounds`; `sd` is that of the statistic.
    pub(crate) fn place(&self, plot: Plot) -> Step {
        let Plot { index, value, statistic, center, reach, sd, bounds } = plot;
        let (lcl, ucl) = match self.design.fixed {
            Some(Fixed { lcl, ucl }) => (lcl, ucl),
            None => {
                let (low, high) = ((center - reach).max(bounds.0), (center + reach).min(bounds.1));
                let sides = self.design.sides;
                ((sides != Sides::Upper).then_some(low), (sides != Sides::Lower).then_some(high))
            }
        };
        let point = Point {
            index,
            value: Reading::One(value),
            statistic: Statistic::One(statistic),
            center: self.model.center.map(|_| center),
            lcl,
            ucl,
        };
        Step { point, mark: Some(Mark::new(statistic, center, sd)), signals: Vec::new(), companion: None }
    }
}

/// Where a point lies, before its limits are known.
pub(crate) struct Plot {
    pub(crate) index: u64,
    pub(crate) value: f64,
    pub(crate) statistic: f64,
    pub(crate) center: f64,
    pub(crate) reach: f64,
    pub(crate) sd: f64,
    pub(crate) bounds: (f64, f64),
}

/// No bounds: the statistic may be any number.
pub(crate) const UNBOUNDED: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

/// A point of a companion chart: both limits, the lower one not below 0.
pub(crate) fn companion(index: u64, statistic: f64, center: f64, reach: f64) -> Point {
    Point {
        index,
        value: Reading::One(statistic),
        statistic: Statistic::One(statistic),
        center: Some(center),
        lcl: Some((center - reach).max(0.0)),
        ucl: Some(center + reach),
    }
}
