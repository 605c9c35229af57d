//! Waiting for a condition. No test waits for a fixed time instead.

use std::time::{Duration, Instant};

/// Time after which a wait is a hang. It ends a broken test; no test relies on it.
const HANG: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls until there is an answer.
///
/// ```
/// let mut polls = 0;
/// let third = phalanx_testkit::wait::until("the third poll", || {
///     polls += 1;
///     (polls == 3).then_some(polls)
/// });
/// assert_eq!(third, 3);
/// ```
#[track_caller]
pub fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = poll() {
            return answer;
        }
        assert!(start.elapsed() < HANG, "{what}: not within {HANG:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Polls until there is an answer, in an async test.
#[cfg(feature = "tokio")]
pub async fn until_async<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let polling = async {
        loop {
            if let Some(answer) = poll().await {
                return answer;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    end_of(what, polling).await
}

/// Waits for the end of a future.
#[cfg(feature = "tokio")]
pub async fn end_of<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.unwrap_or_else(|_| panic!("{what}: not within {HANG:?}"))
}
