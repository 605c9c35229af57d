//! Nelson 2: nine points in a row on one side of the centre (Western Electric 4 asks for eight).

use super::{Definition, pattern};

pub(super) const RULE: Definition = Definition {
    name: "nelson-2",
    text: "nine points in a row on the same side of the centre",
    window: 9,
    zones: true,
    check: |window| pattern::one_side(window, 9),
};
