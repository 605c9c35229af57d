//! Western Electric 3: four of five points in a row beyond 1 σ on one side.

use super::{Definition, pattern};

pub(super) const RULE: Definition = Definition {
    name: "we-3",
    text: "four of five points in a row more than 1 σ from the centre, on the same side",
    window: 5,
    zones: true,
    check: |window| pattern::out_of(window, 4, 5, 1.0),
};
