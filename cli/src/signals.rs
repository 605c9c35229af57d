//! Being told to stop.

use std::future::pending;
use std::io;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Listens to SIGTERM and SIGINT.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
    /// Closed when standard input has ended.
    input: Option<watch::Receiver<()>>,
}

impl Stop {
    pub(crate) fn listen() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("SIGTERM cannot be listened to")?,
            interrupt: signal(SignalKind::interrupt()).context("SIGINT cannot be listened to")?,
            input: None,
        })
    }

    /// The end of standard input counts, too: it comes when whoever holds the other end is gone, however it went.
    pub(crate) fn and_to_the_end_of_input(mut self) -> Self {
        let (open, input) = watch::channel(());
        std::thread::spawn(move || {
            // An error is an end as well.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            drop(open);
        });
        self.input = Some(input);
        self
    }

    /// Waits for any of them.
    pub(crate) async fn wanted(&mut self) {
        let ended = async {
            match &mut self.input {
                Some(input) => while input.changed().await.is_ok() {},
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = ended => {}
        }
    }
}
