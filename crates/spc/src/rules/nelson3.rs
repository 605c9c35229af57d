//! Nelson 3: a trend, six points in a row steadily rising or falling.

use super::pattern::{Finding, Way, Window};
use super::{Definition, Mark};

pub(super) const RULE: Definition = Definition {
    name: "nelson-3",
    text: "six points in a row steadily rising or steadily falling",
    window: 6,
    zones: false,
    check,
};

fn check(window: &Window<'_>) -> Option<Finding> {
    let last = window.last(6)?;
    let steadily = |way: &Way| {
        let ordered = |pair: &[Mark]| match way {
            Way::Up => pair[1].statistic > pair[0].statistic,
            Way::Down => pair[1].statistic < pair[0].statistic,
        };
        last.windows(2).all(ordered)
    };
    let verb = match window.ways().iter().find(|way| steadily(way))? {
        Way::Up => "rise",
        Way::Down => "fall",
    };
    Some(window.run(6, |run| format!("{run} steadily {verb}: a trend.")))
}
