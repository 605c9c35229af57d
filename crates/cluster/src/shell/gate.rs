//! The gate between the fence and what runs: a future is polled only while the worker is unfenced.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::watch;

use super::clock;
use crate::core::types::Time;

/// Whether work may go on. Clones are the same gate.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    /// Until when, if nothing is heard.
    until: Arc<watch::Sender<Option<Time>>>,
}

impl Gate {
    pub(super) fn closed() -> Self {
        Self { until: Arc::new(watch::Sender::new(None)) }
    }

    pub(super) fn set(&self, until: Option<Time>) {
        self.until.send_if_modified(|known| std::mem::replace(known, until) != until);
    }

    pub(super) fn is_open(&self) -> bool {
        is_open(*self.until.borrow())
    }

    /// Polls `work` while the gate is open, and leaves it alone while it is not.
    pub(super) async fn poll_while_open<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut until = self.until.subscribe();
        loop {
            // The sender lives as long as this gate.
            let _ = until.wait_for(|until| is_open(*until)).await;
            let turn = poll_fn(|cx| match self.is_open() {
                true => work.as_mut().poll(cx).map(Some),
                false => Poll::Ready(None),
            });
            if let Some(done) = turn.await {
                return done;
            }
        }
    }
}

fn is_open(until: Option<Time>) -> bool {
    until.is_some_and(|until| clock::now() <= until)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn work_is_polled_only_while_the_gate_is_open() {
        let gate = Gate::closed();
        let (ring, bell) = tokio::sync::oneshot::channel::<u32>();
        let polls = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = polls.clone();
        let mut bell = Box::pin(bell);
        let work = poll_fn(move |cx| {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            bell.as_mut().poll(cx)
        });
        let running = tokio::spawn({
            let gate = gate.clone();
            async move { gate.poll_while_open(work).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(polls.load(std::sync::atomic::Ordering::SeqCst), 0);
        gate.set(Some(clock::now() + LONG));
        while polls.load(std::sync::atomic::Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        gate.set(Some(clock::now() - Duration::from_millis(1)));
        ring.send(7).unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!running.is_finished(), "it went on behind a closed gate");
        gate.set(Some(clock::now() + LONG));
        assert_eq!(running.await.unwrap(), Ok(7));
    }
}
