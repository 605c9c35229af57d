//! Limits: the newest point is beyond a control limit.

use super::{Definition, pattern};

pub(super) const RULE: Definition = Definition {
    name: "limits",
    text: "one point beyond a control limit",
    window: 1,
    zones: false,
    check: pattern::beyond_limit,
};
