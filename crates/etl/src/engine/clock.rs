use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time since the epoch that never runs backwards: the wall tells where it starts, the monotonic clock how it goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    wall: Duration,
    start: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall, start: Instant::now() }
    }

    pub(super) fn now(&self) -> Duration {
        self.wall + self.start.elapsed()
    }
}
