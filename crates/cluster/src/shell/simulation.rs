//! A simulated clock for one thread, so that the simulator can run whole workers in virtual time.
//!
//! Without it, and on every other thread, the worker decides by the clock of the machine.

use std::cell::Cell;

use tokio::time::Instant;

use crate::core::types::Time;

/// The clock of a simulated machine.
#[derive(Clone, Copy, Debug)]
pub enum SimulatedClock {
    /// A clock that follows tokio's clock, which may be paused.
    Running {
        /// A moment of tokio's clock.
        origin: Instant,
        /// The time that the simulated clock shows at that moment.
        shown: Time,
    },
    /// A clock that always shows the same time.
    Stopped(Time),
}

thread_local! {
    static CLOCK: Cell<Option<SimulatedClock>> = const { Cell::new(None) };
}

/// Runs something on this thread with a simulated clock.
pub fn with_clock<T>(clock: SimulatedClock, run: impl FnOnce() -> T) -> T {
    struct Restore(Option<SimulatedClock>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CLOCK.set(self.0);
        }
    }
    let _restore = Restore(CLOCK.replace(Some(clock)));
    run()
}

/// Returns the time of the simulated clock of this thread, if it has one.
pub(super) fn now() -> Option<Time> {
    CLOCK.get().map(|clock| match clock {
        SimulatedClock::Running { origin, shown } => shown + Instant::now().saturating_duration_since(origin),
        SimulatedClock::Stopped(shown) => shown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_simulated_only_inside() {
        let shown = Time::from_secs(7);
        let inside = with_clock(SimulatedClock::Stopped(shown), now);
        assert_eq!((inside, now()), (Some(shown), None));
    }
}
