//! Nelson 5: two of three points in a row beyond 2 σ on one side.

use super::{Definition, pattern};

pub(super) const RULE: Definition = Definition {
    name: "nelson-5",
    text: "two of three points in a row more than 2 σ from the centre, on the same side",
    window: 3,
    zones: true,
    check: |window| pattern::out_of(window, 2, 3, 2.0),
};
