//! Western Electric 4: eight points in a row on one side of the centre (Nelson asks for nine).

use super::{Definition, pattern};

pub(super) const RULE: Definition = Definition {
    name: "we-4",
    text: "eight points in a row on the same side of the centre",
    window: 8,
    zones: true,
    check: |window| pattern::one_side(window, 8),
};
