//! What a chart carries from point to point, for callers that keep the points themselves.

use serde::{Deserialize, Serialize};

use super::design::{Design, Sample, SampleError};
use super::model::Model;
use super::step::{Memory, Phase, Stepper};
use super::{Kind, Point};

/// The running value of an EWMA or the sums of a CUSUM, without the points that rules look back upon: a
/// [`Monitor`](super::Monitor) in parts, much smaller when stored.
///
/// ```
/// use phalanx_spc::chart::{Carry, Design, Kind, Monitor};
/// let design = Design { target: Some(10.0), sd: Some(1.0), ..Design::new(Kind::Cusum { k: 0.5, h: 4.0 }) };
/// let monitor = Monitor::fixed(design.clone()).unwrap();
/// let model = monitor.model().unwrap();
/// let mut carry = Carry::start(&design, model);
/// assert!(!carry.place(&design, model, 12.0).unwrap().is_beyond());
/// assert!(!carry.place(&design, model, 12.5).unwrap().is_beyond());
/// assert!(carry.place(&design, model, 13.0).unwrap().is_beyond());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Carry(Memory);

impl Carry {
    /// Nothing was seen yet.
    pub fn start(design: &Design, model: &Model) -> Self {
        Self(Stepper { design, model }.start())
    }

    /// Places the next value: what is plotted, with its limits. A value that the chart cannot take changes nothing.
    ///
    /// Of a CUSUM that warns on one side only, the other sum is not held against the limit: it is 0 in the point.
    pub fn place(&mut self, design: &Design, model: &Model, value: f64) -> Result<Point, SampleError> {
        let sample = Sample::Value(value);
        design.check_sample(&sample)?;
        let mut point = Stepper { design, model }.step(&mut self.0, 1, &sample, Phase::Two).point;
        if let super::Statistic::Sums { high, low } = &mut point.statistic {
            match design.sides {
                crate::rules::Sides::Both => {}
                crate::rules::Sides::Upper => *low = 0.0,
                crate::rules::Sides::Lower => *high = 0.0,
            }
        }
        Ok(point)
    }

    /// The numbers it consists of, to be stored: two of an EWMA, four of a CUSUM.
    pub fn numbers(&self) -> Vec<f64> {
        match self.0 {
            Memory::Ewma(memory) => memory.numbers().to_vec(),
            Memory::Cusum(memory) => memory.numbers().to_vec(),
            Memory::Last(_) | Memory::Nothing => Vec::new(),
        }
    }

    /// What was stored; none where these are not the numbers of such a chart.
    pub fn of_numbers(kind: Kind, numbers: &[f64]) -> Option<Self> {
        let memory = match (kind, numbers) {
            (Kind::Ewma { .. }, &[average, fading]) => {
                Memory::Ewma(super::ewma::Memory::of_numbers([average, fading])?)
            }
            (Kind::Cusum { .. }, &[high, low, high_since, low_since]) => {
                Memory::Cusum(super::cusum::Memory::of_numbers([high, low, high_since, low_since])?)
            }
            _ => return None,
        };
        Some(Self(memory))
    }
}
