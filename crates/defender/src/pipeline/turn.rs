//! A message in work.

use std::ops::Deref;
use std::time::Instant;

use phalanx_cluster::Delivery;
use phalanx_service::{Beat, Watchdog};

/// A message in work, and who notices if it stays here.
pub(super) struct Turn {
    delivery: Delivery,
    beat: Beat,
}

impl Turn {
    pub(super) fn new(delivery: Delivery, watchdog: &Watchdog) -> Self {
        let beat = watchdog.watch(&format!("the pipeline of {}", delivery.partition));
        Self { delivery, beat }
    }

    /// Waits for store or broker: that counts neither towards the time a message may take nor as being stuck.
    pub(super) async fn waiting<F: Future>(&self, future: F) -> F::Output {
        self.beat.waits();
        let answer = self.delivery.exclude_from_timeout(future).await;
        self.beat.turned(Instant::now());
        answer
    }
}

impl Deref for Turn {
    type Target = Delivery;

    fn deref(&self) -> &Delivery {
        &self.delivery
    }
}
