//! Nelson 4: fourteen points in a row alternating up and down.

use super::pattern::{Finding, Window};
use super::{Definition, Mark};

pub(super) const RULE: Definition = Definition {
    name: "nelson-4",
    text: "fourteen points in a row alternating up and down",
    window: 14,
    zones: false,
    check,
};

fn check(window: &Window<'_>) -> Option<Finding> {
    let turns = |triple: &[Mark]| {
        let (before, after) =
            (triple[1].statistic - triple[0].statistic, triple[2].statistic - triple[1].statistic);
        before > 0.0 && after < 0.0 || before < 0.0 && after > 0.0
    };
    let alternating = window.last(14)?.windows(3).rev().all(turns);
    alternating
        .then(|| window.run(14, |run| format!("{run} alternate up and down: two causes seem to take turns.")))
}
