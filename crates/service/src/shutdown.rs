//! Requests to stop: signals, the end of standard input, and calls, in one type.

use std::io;

use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A signal that this process cannot listen for.
#[derive(Debug, Error)]
#[error("cannot listen for {signal}")]
pub struct ListenError {
    signal: &'static str,
    source: io::Error,
}

/// Requests to stop. Clones share them, and any number of tasks can wait for them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use phalanx_service::Shutdown;
///
/// let shutdown = Shutdown::default();
/// let task = tokio::spawn({
///     let shutdown = shutdown.clone();
///     async move { shutdown.requested().await }
/// });
/// shutdown.request();
/// task.await.unwrap();
/// assert!(shutdown.is_requested());
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Number of requests so far.
    requests: watch::Sender<u32>,
}

impl Shutdown {
    /// Listens for SIGTERM and SIGINT from now on. Must be called within a tokio runtime.
    pub fn on_termination() -> Result<Self, ListenError> {
        Self::on_signals(&[("SIGTERM", SignalKind::terminate()), ("SIGINT", SignalKind::interrupt())])
    }

    /// Listens for SIGINT alone from now on. Must be called within a tokio runtime.
    pub fn on_interrupt() -> Result<Self, ListenError> {
        Self::on_signals(&[("SIGINT", SignalKind::interrupt())])
    }

    fn on_signals(kinds: &[(&'static str, SignalKind)]) -> Result<Self, ListenError> {
        let shutdown = Self::default();
        for (name, kind) in kinds {
            let mut received = signal(*kind).map_err(|source| ListenError { signal: name, source })?;
            let shutdown = shutdown.clone();
            // The task ends with the runtime; until then the process handles the signal.
            tokio::spawn(async move {
                while received.recv().await.is_some() {
                    shutdown.request();
                }
            });
        }
        Ok(shutdown)
    }

    /// Also requests a stop when standard input closes, which happens however the process at its other end terminates.
    #[must_use]
    pub fn with_stdin_close(self) -> Self {
        let shutdown = self.clone();
        std::thread::spawn(move || {
            // An error ends the input as well.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            shutdown.request();
        });
        self
    }

    /// Returns a guard that requests a stop when it is dropped.
    #[must_use]
    pub fn guard(&self) -> ShutdownGuard {
        ShutdownGuard(self.clone())
    }

    /// Requests a stop.
    pub fn request(&self) {
        self.requests.send_modify(|requests| *requests = requests.saturating_add(1));
    }

    /// Returns whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        *self.requests.borrow() > 0
    }

    /// Waits for the first request; returns immediately if there was one.
    pub async fn requested(&self) {
        self.reached(1).await;
    }

    /// Waits for the second request: the user does not want to wait for a graceful stop.
    pub async fn requested_again(&self) {
        self.reached(2).await;
    }

    async fn reached(&self, count: u32) {
        // The sender lives as long as `self`, so the channel cannot close.
        let _ = self.requests.subscribe().wait_for(|requests| *requests >= count).await;
    }
}

/// Requests a stop when it is dropped, so that tasks end with their owner.
#[derive(Debug)]
pub struct ShutdownGuard(Shutdown);

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        self.0.request();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_request_is_seen_by_every_clone_and_by_those_that_wait_later() {
        let shutdown = Shutdown::default();
        let clone = shutdown.clone();
        assert!(!clone.is_requested() && clone.requested().now_or_never().is_none());
        shutdown.request();
        assert!(clone.is_requested() && clone.requested().now_or_never().is_some());
        assert!(clone.requested().now_or_never().is_some(), "it stays requested");
    }

    #[test]
    fn the_second_request_is_one_of_its_own() {
        let shutdown = Shutdown::default();
        shutdown.request();
        assert!(shutdown.requested_again().now_or_never().is_none());
        shutdown.request();
        assert!(shutdown.requested_again().now_or_never().is_some());
    }
}
