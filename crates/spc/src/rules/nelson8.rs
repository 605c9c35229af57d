//! Nelson 8: mixture, eight points in a row outside 1 σ, on both sides of the centre.

use super::Definition;
use super::pattern::{Finding, Window};

pub(super) const RULE: Definition = Definition {
    name: "nelson-8",
    text: "eight points in a row more than 1 σ from the centre, some above and some below it",
    window: 8,
    zones: true,
    check,
};

fn check(window: &Window<'_>) -> Option<Finding> {
    let last = window.last(8)?;
    let outside = last.iter().rev().all(|mark| mark.z.abs() > 1.0);
    let both = last.iter().any(|mark| mark.z > 0.0) && last.iter().any(|mark| mark.z < 0.0);
    (outside && both).then(|| {
        window.run(8, |run| {
            format!(
                "{run} avoid the zone within 1 σ of the centre, on both sides: a mixture of two processes."
            )
        })
    })
}
