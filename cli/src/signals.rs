//! Being told to stop.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens to SIGTERM and SIGINT.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    pub(crate) fn listen() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("SIGTERM cannot be listened to")?,
            interrupt: signal(SignalKind::interrupt()).context("SIGINT cannot be listened to")?,
        })
    }

    /// Waits for either.
    pub(crate) async fn wanted(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
