//! Control charts: what is plotted, with which limits, and what the rules say of it.
//!
//! A [`Design`] says what a chart is. [`learn`] finds centre and σ in a baseline (phase I); [`judge`] holds points
//! against them (phase II); [`analyse`] does both for a whole chart, and [`Monitor`] does both a point at a time.

mod attribute;
mod baseline;
mod batch;
mod carry;
mod cusum;
mod design;
mod ewma;
mod individuals;
mod model;
mod monitor;
mod step;
mod subgroups;
mod t2;

use serde::{Deserialize, Serialize};

pub use baseline::{Learned, learn};
pub use batch::{Center, Chart, ChartError, analyse, analyse_capability, judge};
pub use carry::Carry;
pub use design::{Design, DesignError, Fixed, Kind, Sample, SampleError};
pub use model::{Estimator, LearnError, Model, Vector};
pub use monitor::{Judged, Judgement, MAX_BASELINE, Monitor, StateError};

pub use crate::linear::Cholesky;

/// What was measured: a value, the mean of a subgroup, a count, or a vector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reading {
    /// A number.
    One(f64),
    /// One number of each variable.
    Many(Vec<f64>),
}

/// What is plotted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Statistic {
    /// A number.
    One(f64),
    /// The two sums of a CUSUM, neither below 0.
    Sums {
        /// Rises with the mean.
        high: f64,
        /// Rises as the mean falls.
        low: f64,
    },
}

/// A point of a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The first is 1.
    pub index: u64,
    /// What was measured.
    pub value: Reading,
    /// What is plotted.
    pub statistic: Statistic,
    /// Its centre, where points have different ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub center: Option<f64>,
    /// Its lower limit.
    pub lcl: Option<f64>,
    /// Its upper limit.
    pub ucl: Option<f64>,
}

impl Point {
    /// Whether it is beyond a limit.
    pub fn is_beyond(&self) -> bool {
        let (low, high) = match self.statistic {
            Statistic::One(statistic) => (statistic, statistic),
            Statistic::Sums { high, low } => (f64::INFINITY, high.max(low)),
        };
        self.lcl.is_some_and(|lcl| low < lcl) || self.ucl.is_some_and(|ucl| high > ucl)
    }
}
