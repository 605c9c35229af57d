//! Time that does not count against a message: what it waits for others.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::clock;
use crate::core::types::Time;

/// How long a message has waited for what is no fault of its own. Clones are the same count.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitTime(Arc<Mutex<WaitTotals>>);

#[derive(Debug, Default)]
struct WaitTotals {
    /// Waits that are over.
    finished: Duration,
    /// How many are not, and since when there was one.
    active: u32,
    since: Option<Time>,
}

impl WaitTotals {
    fn begin(&mut self, now: Time) {
        self.active += 1;
        self.since.get_or_insert(now);
    }

    fn end(&mut self, now: Time) {
        self.active -= 1;
        if let Some(since) = self.since.take_if(|_| self.active == 0) {
            self.finished += now.saturating_sub(since);
        }
    }

    fn waited(&self, now: Time) -> Duration {
        self.finished + self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

impl WaitTime {
    /// Waits without counting.
    pub(super) async fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        let _open = WaitGuard::begin(self);
        work.await
    }

    /// Gives `work` that much time, besides what it waits. None if it takes longer.
    pub(super) async fn timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let began = clock::now();
        loop {
            let allowed = limit + self.waited();
            let spent = clock::now() - began;
            let left = allowed.checked_sub(spent).filter(|left| !left.is_zero())?;
            if let Ok(done) = tokio::time::timeout(left, &mut work).await {
                return Some(done);
            }
        }
    }

    fn waited(&self) -> Duration {
        self.with(|waits| waits.waited(clock::now()))
    }

    fn with<T>(&self, act: impl FnOnce(&mut WaitTotals) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A wait that ends when this is dropped, whatever becomes of it.
struct WaitGuard<'a>(&'a WaitTime);

impl<'a> WaitGuard<'a> {
    fn begin(patience: &'a WaitTime) -> Self {
        patience.with(|waits| waits.begin(clock::now()));
        Self(patience)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.with(|waits| waits.end(clock::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_at_once_count_once_and_an_open_one_counts_until_now() {
        let (start, s) = (Time::ZERO, Duration::from_secs);
        let mut waits = WaitTotals::default();
        waits.begin(start + s(1));
        waits.begin(start + s(2));
        assert_eq!(waits.waited(start + s(4)), s(3));
        waits.end(start + s(5));
        waits.end(start + s(6));
        assert_eq!(waits.waited(start + s(60)), s(5));
        waits.begin(start + s(100));
        assert_eq!(waits.waited(start + s(103)), s(8));
    }

    #[tokio::test]
    async fn work_that_only_waits_is_never_out_of_time_and_work_that_works_is() {
        let patience = WaitTime::default();
        let ms = Duration::from_millis;
        let waiting = patience.wait(tokio::time::sleep(ms(60)));
        assert_eq!(patience.timeout(ms(5), waiting).await, Some(()));
        assert_eq!(patience.timeout(ms(5), std::future::pending::<()>()).await, None);
    }
}
