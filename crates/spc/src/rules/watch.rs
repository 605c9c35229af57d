//! Rules over a whole chart, and a point at a time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::pattern::Window;
use super::{Rule, Sides, Signal};
use crate::chart::{Point, Statistic};

/// A point as the rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, f64)", into = "(f64, f64)")]
pub struct Mark {
    /// What is plotted.
    pub statistic: f64,
    /// Its distance from the centre, in standard deviations of the statistic.
    pub z: f64,
}

impl Mark {
    /// Rules know zones up to 3 σ; how far beyond does not matter, and stored states hold finite numbers only.
    const FARTHEST: f64 = 1e6;

    /// A point that lies so far from its centre; `sd` is that of the statistic.
    ///
    /// ```
    /// use phalanx_spc::rules::Mark;
    /// assert_eq!(Mark::new(13.0, 10.0, 2.0).z, 1.5);
    /// ```
    pub fn new(statistic: f64, center: f64, sd: f64) -> Self {
        let z =
            if sd > 0.0 { ((statistic - center) / sd).clamp(-Self::FARTHEST, Self::FARTHEST) } else { 0.0 };
        Self { statistic, z }
    }
}

impl From<(f64, f64)> for Mark {
    fn from((statistic, z): (f64, f64)) -> Self {
        Self { statistic, z }
    }
}

impl From<Mark> for (f64, f64) {
    fn from(mark: Mark) -> Self {
        (mark.statistic, mark.z)
    }
}

/// Every signal of a whole chart: its points with their limits, in order.
pub fn scan(rules: &[Rule], sides: Sides, points: &[(Mark, Option<f64>, Option<f64>)]) -> Vec<Signal> {
    let marks: Vec<Mark> = points.iter().map(|point| point.0).collect();
    (1..=points.len())
        .flat_map(|end| {
            let (_, lcl, ucl) = points[end - 1];
            let window = Window { marks: &marks[..end], index: end as u64, lcl, ucl, sides };
            rules.iter().filter_map(move |&rule| judge(rule, &window))
        })
        .collect()
}

/// The signals that the newest of these points completes, for callers that keep the points themselves. The points are
/// in order, the newest last; those before the longest window of the rules do not matter.
///
/// ```
/// use phalanx_spc::rules::{Mark, Rule, Sides, newest};
/// let marks: Vec<Mark> = (0..9).map(|i| Mark::new(10.1 + f64::from(i % 2), 10.0, 1.0)).collect();
/// let signals = newest(&[Rule::Nelson1, Rule::Nelson2], Sides::Both, &marks, Some(7.0), Some(13.0));
/// assert_eq!(signals.len(), 1);
/// assert_eq!(signals[0].rule, Rule::Nelson2);
/// ```
pub fn newest(
    rules: &[Rule],
    sides: Sides,
    marks: &[Mark],
    lcl: Option<f64>,
    ucl: Option<f64>,
) -> Vec<Signal> {
    if marks.is_empty() {
        return Vec::new();
    }
    let window = Window { marks, index: marks.len() as u64, lcl, ucl, sides };
    rules.iter().filter_map(|&rule| judge(rule, &window)).collect()
}

fn judge(rule: Rule, window: &Window<'_>) -> Option<Signal> {
    let finding = (rule.rule().check)(window)?;
    Some(Signal { index: window.index, rule, points: finding.points, message: finding.message })
}

/// The signal of a point beyond its limits, for charts that no other rule judges.
pub(crate) fn beyond(point: &Point) -> Option<Signal> {
    let Statistic::One(statistic) = point.statistic else { return None };
    let marks = [Mark { statistic, z: 0.0 }];
    let (lcl, ucl) = (point.lcl, point.ucl);
    judge(Rule::Limits, &Window { marks: &marks, index: point.index, lcl, ucl, sides: Sides::Both })
}

/// What rules remember between points: how many there were, and the last few.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    index: u64,
    recent: VecDeque<Mark>,
}

impl Watch {
    /// Takes the next point and gives the signals it completes. A point without a mark is only counted: its chart
    /// judges it.
    pub fn push(
        &mut self,
        rules: &[Rule],
        sides: Sides,
        mark: Option<Mark>,
        lcl: Option<f64>,
        ucl: Option<f64>,
    ) -> Vec<Signal> {
        self.index += 1;
        let Some(mark) = mark else { return Vec::new() };
        let keep = rules.iter().map(|rule| rule.window()).max().unwrap_or(1);
        while self.recent.len() >= keep {
            self.recent.pop_front();
        }
        self.recent.push_back(mark);
        let window = Window { marks: self.recent.make_contiguous(), index: self.index, lcl, ucl, sides };
        rules.iter().filter_map(|&rule| judge(rule, &window)).collect()
    }

    /// How many points there were.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Whether it could have come from [`Watch::push`]; what was stored may have been damaged.
    pub(crate) fn is_sound(&self) -> bool {
        let longest = Rule::ALL.iter().map(|rule| rule.window()).max().unwrap_or(1);
        self.recent.len() <= longest && self.recent.len() as u64 <= self.index
    }
}
