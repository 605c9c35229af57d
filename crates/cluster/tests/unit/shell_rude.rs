//! A handler that panics where nobody expects it.

use crate::fleet::{builder, config, log, memory, publish, settled};
use phalanx_cluster::core::{Position, RecoveryPoint};
use phalanx_cluster::{Decoded, Delivery, Failure, Handler, Unavailable};
use phalanx_testkit::wait::until_async;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Default)]
struct Rude {
    asked: AtomicU32,
}

#[async_trait::async_trait]
impl Handler for Rude {
    async fn handle(&self, _: Delivery) -> Result<(), Failure> {
        Ok(())
    }

    fn decode(&self, _: &str, _: &[u8]) -> Decoded {
        panic!("it has no name")
    }

    async fn recovery_point(&self, _: &str) -> Result<Option<RecoveryPoint>, Unavailable> {
        if self.asked.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("the first question is too much");
        }
        Ok(None)
    }

    fn committed(&self, _: &str, _: Position) {
        panic!("it does not want to know")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_wherever_it_is_asked_holds_up_nobody() {
    let backend = memory();
    let worker = builder(&backend, config(1), 1).handler(Rude::default()).start().await.unwrap();
    settled(&[&worker], 1).await;
    let log = log(&backend).await;
    for n in 0..3 {
        publish(&log, 0, &n.to_string()).await;
    }
    until_async("three commits", async || (worker.stats().processed == 3).then_some(())).await;
    worker.shutdown().await;
}
