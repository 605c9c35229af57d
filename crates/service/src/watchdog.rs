//! Notices loops that make no turn any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A loop that made no turn for this long is stuck.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Knows when each loop made its last turn. Clones are the same watchdog.
///
/// ```
/// use std::time::{Duration, Instant};
/// use phalanx_service::{PATIENCE, Watchdog};
///
/// let watchdog = Watchdog::default();
/// let beat = watchdog.watch("event loop");
/// let now = Instant::now();
/// beat.turned(now);
/// assert_eq!(watchdog.stuck(now + PATIENCE), Vec::<String>::new());
/// assert_eq!(watchdog.stuck(now + PATIENCE + Duration::from_millis(1)), ["event loop"]);
/// beat.waits();
/// assert!(watchdog.stuck(now + PATIENCE * 2).is_empty(), "whoever waits for others is not stuck");
/// drop(beat);
/// assert!(watchdog.stuck(now + PATIENCE * 2).is_empty(), "a loop that has ended is not stuck");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Watchdog(Arc<Mutex<Loops>>);

#[derive(Debug, Default)]
struct Loops {
    next: u64,
    turns: BTreeMap<u64, (String, Option<Instant>)>,
}

impl Watchdog {
    /// Watches a loop from now on, until its beat is dropped.
    #[must_use]
    pub fn watch(&self, name: &str) -> Beat {
        let mut loops = self.lock();
        let number = loops.next;
        loops.next += 1;
        loops.turns.insert(number, (name.to_owned(), Some(Instant::now())));
        Beat { watchdog: self.clone(), number }
    }

    /// The loops that have made no turn for longer than [`PATIENCE`].
    pub fn stuck(&self, now: Instant) -> Vec<String> {
        let loops = self.lock();
        let is_stuck = |turned: &Option<Instant>| {
            turned.is_some_and(|turned| now.saturating_duration_since(turned) > PATIENCE)
        };
        let stuck = loops.turns.values().filter(|(_, turned)| is_stuck(turned));
        stuck.map(|(name, _)| name.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Loops> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that a loop goes round.
#[derive(Debug)]
pub struct Beat {
    watchdog: Watchdog,
    number: u64,
}

impl Beat {
    /// The loop made a turn.
    pub fn turned(&self, now: Instant) {
        if let Some((_, turned)) = self.watchdog.lock().turns.get_mut(&self.number) {
            *turned = Some(now);
        }
    }

    /// The loop waits for something outside, and says when it goes on: until then it is not stuck, however long that takes.
    pub fn waits(&self) {
        if let Some((_, turned)) = self.watchdog.lock().turns.get_mut(&self.number) {
            *turned = None;
        }
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.watchdog.lock().turns.remove(&self.number);
    }
}
