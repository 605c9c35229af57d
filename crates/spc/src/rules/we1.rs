//! Western Electric 1: one point beyond the control limits (3 σ).

use super::{Definition, pattern};

pub(super) const RULE: Definition = Definition {
    name: "we-1",
    text: "one point beyond a control limit (3 σ from the centre)",
    window: 1,
    zones: false,
    check: pattern::beyond_limit,
};
