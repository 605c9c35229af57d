//! A hundred partitions on as many workers as you start.
//!
//! `cargo run -p phalanx-cluster-nats --example hello` is a worker; with a partition and a text behind `--` it publishes that.

use std::sync::Arc;

use phalanx_cluster::backend::{AppendCondition, StoreConfig, open_log};
use phalanx_cluster::core::Config;
use phalanx_cluster::{Delivery, Failure, Handler, Worker};
use phalanx_cluster_nats::Nats;

/// What you do with a message.
struct Print;

#[async_trait::async_trait]
impl Handler for Print {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        println!("partition {}: {}", delivery.partition, String::from_utf8_lossy(&delivery.payload));
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let nats = Arc::new(Nats::connect(&phalanx_cluster_nats::Config::new(url)).await?);
    let hello = StoreConfig::of("hello");
    if let [_, partition, text] = &std::env::args().collect::<Vec<_>>()[..] {
        let log = open_log(&*nats, &hello.log, &hello.names).await?;
        log.append(&hello.subjects.subject(partition), text.clone().into(), AppendCondition::None).await?;
        return Ok(());
    }
    let worker = Worker::builder(hello, nats)
        .partitions((0..100).map(|n| (n.to_string(), 1)).collect::<Vec<_>>())
        .config(Config { fleet_size: Some(2), ..Config::default() })
        .handler(Print)
        .start()
        .await?;
    println!("waiting for the fleet: two workers, or half a minute");
    worker.wait_until(|status| !status.assignment.is_empty()).await;
    println!("serving {} partitions; Ctrl-C to leave", worker.assignment().len());
    tokio::signal::ctrl_c().await?;
    worker.shutdown().await;
    Ok(())
}
