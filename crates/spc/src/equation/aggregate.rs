//! Functions over chosen points: everything that is asked of a choice, in one pass over its points.

use std::ops::Range;

use super::Column;
use super::function::Function;
use crate::numeric::{Moments, Sum, quantile};

/// So many points are read at a time; what is asked of them finds them in the nearest cache.
const BLOCK: usize = 256;

/// What the functions need to be kept of the points.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    moments: bool,
    extremes: bool,
    area: bool,
    line: bool,
    values: bool,
}

impl Needs {
    pub(super) fn add(&mut self, function: Function) {
        match function {
            Function::Mean | Function::Std | Function::Var | Function::Rms => self.moments = true,
            Function::Min | Function::Max | Function::Range => self.extremes = true,
            Function::Area => self.area = true,
            Function::Slope => self.line = true,
            Function::Median | Function::Quantile => self.values = true,
            Function::First | Function::Last | Function::Count | Function::Duration => {}
        }
    }
}

/// What was kept of the points.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) is_finite: bool,
    first: f64,
    last: f64,
    min: f64,
    max: f64,
    seconds: Sum,
    moments: Moments,
    area: Sum,
    line: Line,
    values: Vec<f64>,
}

/// Microseconds between two timestamps, as seconds.
fn seconds(from: i64, to: i64) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}

impl Summary {
    /// `values` lends its memory and gets it back by [`Summary::into_values`].
    pub(super) fn new(needs: Needs, column: &Column<'_>, runs: &[Range<usize>], values: Vec<f64>) -> Self {
        let mut summary = Self {
            count: 0,
            is_finite: true,
            first: f64::NAN,
            last: f64::NAN,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            seconds: Sum::default(),
            moments: Moments::default(),
            area: Sum::default(),
            line: Line::default(),
            values,
        };
        summary.values.clear();
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return summary };
        summary.first = column.values()[first.start];
        summary.last = column.values()[last.end - 1];
        let origin = column.timestamps()[first.start];
        for run in runs {
            let (times, values) = (&column.timestamps()[run.clone()], &column.values()[run.clone()]);
            summary.seconds.add(seconds(times[0], times[times.len() - 1]));
            for at in (0..values.len()).step_by(BLOCK) {
                let end = (at + BLOCK).min(values.len());
                summary.block(needs, &times[at..end], &values[at..end], origin);
                // The trapezoid between two blocks belongs to neither.
                if needs.area && end < values.len() {
                    summary.trapezoid(&times[end - 1..=end], &values[end - 1..=end]);
                }
            }
        }
        summary
    }

    pub(super) fn into_values(self) -> Vec<f64> {
        self.values
    }

    fn block(&mut self, needs: Needs, times: &[i64], values: &[f64], origin: i64) {
        self.count += values.len() as u64;
        self.is_finite &= values.iter().fold(true, |finite, value| finite & value.is_finite());
        if needs.moments {
            self.moments.extend(values);
        }
        if needs.extremes {
            self.min = values.iter().copied().fold(self.min, f64::min);
            self.max = values.iter().copied().fold(self.max, f64::max);
        }
        if needs.area {
            for at in 1..values.len() {
                self.trapezoid(&times[at - 1..=at], &values[at - 1..=at]);
            }
        }
        if needs.line {
            self.line.extend(times, values, origin);
        }
        if needs.values {
            self.values.extend_from_slice(values);
        }
    }

    fn trapezoid(&mut self, times: &[i64], values: &[f64]) {
        self.area.add(seconds(times[0], times[1]) * (0.5 * values[0] + 0.5 * values[1]));
    }

    /// The result of a function; not finite where there is none.
    pub(super) fn result(&mut self, function: Function, q: f64) -> f64 {
        let or_none = |result: Option<f64>| result.unwrap_or(f64::NAN);
        match function {
            Function::Mean => or_none(self.moments.mean()),
            Function::Std => or_none(self.moments.deviation()),
            Function::Var => or_none(self.moments.variance()),
            Function::Rms => {
                let (Some(mean), count) = (self.moments.mean(), self.count as f64) else { return f64::NAN };
                let spread = self.moments.variance().unwrap_or(0.0) * (count - 1.0) / count;
                mean.hypot(spread.sqrt())
            }
            Function::Min => self.min,
            Function::Max => self.max,
            Function::Range => self.max - self.min,
            Function::Median => or_none(quantile(&mut self.values, 0.5)),
            Function::Quantile => or_none(quantile(&mut self.values, q)),
            Function::First => self.first,
            Function::Last => self.last,
            Function::Count => self.count as f64,
            Function::Duration => self.seconds.total(),
            Function::Area => self.area.total(),
            Function::Slope => self.line.slope(),
        }
    }
}

/// A least-squares line, taken in blocks around their own means, which are then merged.
#[derive(Debug, Default)]
struct Line {
    count: f64,
    time: f64,
    value: f64,
    /// Sums of squared deviations of the times, and of their products with those of the values.
    times: f64,
    products: f64,
}

impl Line {
    fn extend(&mut self, times: &[i64], values: &[f64], origin: i64) {
        let count = values.len() as f64;
        let points = || times.iter().map(|&time| seconds(origin, time)).zip(values.iter().copied());
        let (time, value) = points().fold((0.0, 0.0), |sums, (t, v)| (sums.0 + t, sums.1 + v));
        let (time, value) = (time / count, value / count);
        let (squares, products) = points().fold((0.0, 0.0), |sums, (t, v)| {
            (sums.0 + (t - time) * (t - time), sums.1 + (t - time) * (v - value))
        });
        let total = self.count + count;
        let (apart_time, apart_value) = (time - self.time, value - self.value);
        let share = self.count * count / total;
        self.times += squares + apart_time * apart_time * share;
        self.products += products + apart_time * apart_value * share;
        self.time += apart_time * (count / total);
        self.value += apart_value * (count / total);
        self.count = total;
    }

    /// Not finite where all times are the same.
    fn slope(&self) -> f64 {
        self.products / self.times
    }
}
