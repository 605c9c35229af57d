//! The shapes that several rules share, and what they look at.

use super::{Mark, Sides};
use crate::numeric::short;

/// The last points of a chart, newest last; never empty.
pub(super) struct Window<'a> {
    pub(super) marks: &'a [Mark],
    /// The index of the newest point.
    pub(super) index: u64,
    pub(super) lcl: Option<f64>,
    pub(super) ucl: Option<f64>,
    pub(super) sides: Sides,
}

/// A pattern that was found: which of the window's points, and the sentence.
pub(super) struct Finding {
    pub(super) points: Vec<u64>,
    pub(super) message: String,
}

/// A direction from the centre.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Up,
    Down,
}

impl Way {
    fn sign(self) -> f64 {
        match self {
            Self::Up => 1.0,
            Self::Down => -1.0,
        }
    }

    pub(super) fn side(self) -> &'static str {
        match self {
            Self::Up => "above",
            Self::Down => "below",
        }
    }
}

impl Window<'_> {
    /// The directions in which this chart warns.
    pub(super) fn ways(&self) -> &'static [Way] {
        match self.sides {
            Sides::Both => &[Way::Up, Way::Down],
            Sides::Upper => &[Way::Up],
            Sides::Lower => &[Way::Down],
        }
    }

    pub(super) fn newest(&self) -> &Mark {
        &self.marks[self.marks.len() - 1]
    }

    /// The last `n` points, once there are so many.
    pub(super) fn last(&self, n: usize) -> Option<&[Mark]> {
        self.marks.len().checked_sub(n).map(|start| &self.marks[start..])
    }

    /// The last `n` points in words and numbers.
    pub(super) fn run(&self, n: usize, message: impl FnOnce(String) -> String) -> Finding {
        let first = self.index - n as u64 + 1;
        Finding {
            points: (first..=self.index).collect(),
            message: message(format!("{n} points in a row ({first} to {})", self.index)),
        }
    }
}

/// The newest point is beyond a limit.
pub(super) fn beyond_limit(window: &Window<'_>) -> Option<Finding> {
    let mark = window.newest();
    let (way, name, limit) = match (window.lcl, window.ucl) {
        (_, Some(ucl)) if mark.statistic > ucl => (Way::Up, "upper", ucl),
        (Some(lcl), _) if mark.statistic < lcl => (Way::Down, "lower", lcl),
        _ => return None,
    };
    let message = format!(
        "Point {} at {} is {} the {name} limit {}.",
        window.index,
        short(mark.statistic),
        way.side(),
        short(limit)
    );
    Some(Finding { points: vec![window.index], message })
}

/// `n` points in a row on one side of the centre.
pub(super) fn one_side(window: &Window<'_>, n: usize) -> Option<Finding> {
    let last = window.last(n)?;
    let way = *window.ways().iter().find(|way| last.iter().all(|mark| mark.z * way.sign() > 0.0))?;
    Some(window.run(n, |run| format!("{run} lie {} the centre.", way.side())))
}

/// `k` of the last `n` points more than `zone` σ from the centre on one side, the newest among them.
pub(super) fn out_of(window: &Window<'_>, k: usize, n: usize, zone: f64) -> Option<Finding> {
    let start = window.marks.len().saturating_sub(n);
    let last = &window.marks[start..];
    let far = |mark: &Mark, way: &Way| mark.z * way.sign() > zone;
    let way = *window
        .ways()
        .iter()
        .find(|way| far(window.newest(), way) && last.iter().filter(|mark| far(mark, way)).count() >= k)?;
    let first = window.index - last.len() as u64 + 1;
    let points: Vec<u64> =
        (first..).zip(last).filter(|(_, mark)| far(mark, &way)).map(|(index, _)| index).collect();
    let list = points.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let message = format!(
        "{} of {n} points in a row ({list}) lie more than {zone} σ {} the centre.",
        points.len(),
        way.side()
    );
    Some(Finding { points, message })
}
