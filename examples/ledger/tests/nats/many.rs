//! A hundred thousand partitions: the map lies in parts, and every worker applies it.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::fleet::{Fleet, MACHINE, Member, Published, connect, runs};
use phalanx_cluster::backend::Backend as _;
use phalanx_cluster::codec::is_part;
use phalanx_ledger::settings;
use phalanx_testkit::nats::Server;
use phalanx_testkit::wait::until_async;

const PARTS: usize = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_partitions_are_published_in_parts_and_served() {
    let _machine = MACHINE.write().await;
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fleet = Fleet {
        binary: env!("CARGO_BIN_EXE_ledger"),
        url: server.url(),
        dir: dir.path().to_owned(),
        parts: PARTS,
        size: 2,
        replicas: 1,
        history: 1,
        env: Vec::new(),
    };
    let nats = connect(&server.url(), 1).await;
    let log = nats.log(&settings(1).log).await.unwrap();
    let began = Instant::now();
    let _members: Vec<Member> = ["anna", "berta"].iter().map(|name| fleet.start(name)).collect();
    let heartbeats = nats.bucket(&settings(1).heartbeats).await.unwrap();
    let sum = async || {
        let mut sum = 0;
        for id in 0..2 {
            let entry = heartbeats.get(&format!("ledger-{id}")).await.ok()??;
            let beat: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
            assert_ne!(beat["state"], "DEGRADED");
            sum += usize::try_from(beat["assignedPartitions"].as_u64().unwrap()).unwrap();
        }
        (sum == PARTS).then_some(())
    };
    until_async("both have applied the map", sum).await;
    println!(
        "measured: 100,000 partitions applied by 2 workers {:.1} s after their start",
        began.elapsed().as_secs_f64()
    );
    let assignments = nats.bucket(&settings(1).assignments).await.unwrap();
    let current = assignments.get("current").await.unwrap().unwrap();
    let current: serde_json::Value = serde_json::from_slice(&current.value).unwrap();
    let named = current["parts"].as_array().expect("current names parts").len();
    let stored = assignments.keys().await.unwrap().iter().filter(|key| is_part(key)).count();
    assert_eq!(named, stored, "parts of other maps lie about");
    let published = Published::default();
    for n in 0..50 {
        published.publish(&log, n * 1999, 0).await;
    }
    // A worker that fences itself on a busy machine processes a message again, so messages are counted, not runs.
    until_async("all are processed", async || {
        let runs = runs(dir.path());
        let ids: BTreeSet<&str> = runs.iter().filter(|run| run.end.is_some()).map(|run| &*run.id).collect();
        (ids.len() == 50).then_some(())
    })
    .await;
    println!(
        "measured: 50 messages among them processed {:.1} s after the start",
        began.elapsed().as_secs_f64()
    );
}
