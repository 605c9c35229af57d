//! The two clocks: one to decide by, one for people to read.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::core::types::Time;

/// Time since this machine started. It runs through suspension, and nobody sets it.
pub(super) fn now() -> Time {
    #[cfg(feature = "simulation")]
    if let Some(shown) = super::simulation::now() {
        return shown;
    }
    let time = clock_gettime(ClockId::Boottime);
    Time::from_origin(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

/// The wall clock, for people. Nothing is decided by it.
pub(super) fn wall() -> String {
    let now = jiff::Timestamp::now();
    // Whole milliseconds are enough.
    jiff::Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now).to_string()
}
