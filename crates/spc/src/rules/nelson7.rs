//! Nelson 7: stratification, fifteen points in a row within 1 σ of the centre.

use super::Definition;
use super::pattern::{Finding, Window};

pub(super) const RULE: Definition = Definition {
    name: "nelson-7",
    text: "fifteen points in a row within 1 σ of the centre, on either side",
    window: 15,
    zones: true,
    check,
};

fn check(window: &Window<'_>) -> Option<Finding> {
    let within = window.last(15)?.iter().rev().all(|mark| mark.z.abs() < 1.0);
    within.then(|| {
        window.run(15, |run| format!("{run} stay within 1 σ of the centre: less variation than expected."))
    })
}
