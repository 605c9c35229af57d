//! The clock that a leader counts its term by.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since this machine started. It runs through suspension: whoever slept through its term must know when it wakes.
pub(super) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
