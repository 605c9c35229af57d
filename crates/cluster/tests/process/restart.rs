//! An embedded folder across restarts: a clean stop counts as no worker crash, `kill -9` counts as exactly one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use phalanx_cluster::backend::{Backend, Embedded};
use phalanx_cluster::core::Config;
use phalanx_cluster::{Delivery, Failure, Handler};
use phalanx_testkit::process::{Lifetime, Process, bound_to_parent};
use phalanx_testkit::wait::until_async;
use serde_json::Value;
use tempfile::tempdir;

use crate::fleet::{builder, log, publish, settings, settled};

const TEST: &str = "restart::clean_restarts_count_as_no_worker_crash_and_kill_9_as_one";
/// Set in the child process: its data folder.
const FOLDER: &str = "PHALANX_RESTART_TEST_FOLDER";
/// Number of messages that the child commits before it stops.
const COMMITS: &str = "PHALANX_RESTART_TEST_COMMITS";
/// Partitions whose pending message the child must have attempted before it stops, separated by commas.
const ATTEMPTS: &str = "PHALANX_RESTART_TEST_ATTEMPTS";
/// Set if the child waits to be killed instead of leaving.
const STAYS: &str = "PHALANX_RESTART_TEST_STAYS";

const WORKERS: usize = 2;
const PARTITIONS: usize = 4;
/// File that makes the result store available.
const STORE_FILE: &str = "store";
/// File that a child writes when it waits to be killed.
const READY_FILE: &str = "ready";

/// Processes `now-…` immediately, and `later-…` only when the result store is available.
#[derive(Clone)]
struct StoreDependent {
    folder: PathBuf,
    attempted: Arc<Mutex<BTreeSet<String>>>,
}

#[async_trait::async_trait]
impl Handler for StoreDependent {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        if delivery.payload.starts_with(b"later") && !self.folder.join(STORE_FILE).exists() {
            self.attempted.lock().unwrap().insert(delivery.partition.to_string());
            return Err(Failure::Unavailable);
        }
        Ok(())
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Runs all workers of the folder in the child process.
async fn run_workers(folder: &Path) {
    let embedded = Embedded::open(folder).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(embedded.clone());
    let handler = StoreDependent { folder: folder.to_owned(), attempted: Arc::default() };
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        // The times of production: a busy machine must not fence a worker.
        let config = Config { fleet_size: Some(WORKERS as u32), ..Config::default() };
        let builder = builder(&backend, config, PARTITIONS).handler(handler.clone());
        workers.push(builder.start().await.unwrap());
    }
    settled(&workers.iter().collect::<Vec<_>>(), PARTITIONS).await;
    let commits: u64 = variable(COMMITS).parse().unwrap();
    let attempts: BTreeSet<String> =
        variable(ATTEMPTS).split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    until_async("the messages of this run", async || {
        let processed: u64 = workers.iter().map(|worker| worker.stats().processed).sum();
        (processed >= commits && handler.attempted.lock().unwrap().is_superset(&attempts)).then_some(())
    })
    .await;
    if std::env::var_os(STAYS).is_some() {
        fs::write(folder.join(READY_FILE), "").unwrap();
        std::future::pending::<()>().await;
    }
    join_all(workers.iter().map(|worker| worker.shutdown())).await;
    embedded.close().await;
}

/// A data folder and the processes that use it, one after the other.
struct Folder {
    path: PathBuf,
    runs: usize,
}

impl Folder {
    fn launch(&mut self, commits: u64, attempts: &str, stays: bool) -> (Process, PathBuf) {
        self.runs += 1;
        let output = self.path.join(format!("run-{}.log", self.runs));
        let mut command = bound_to_parent(&std::env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", TEST]);
        command.env(FOLDER, &self.path).env(COMMITS, commits.to_string()).env(ATTEMPTS, attempts);
        if stays {
            command.env(STAYS, "1");
        }
        (Process::start(command, Lifetime::WithUs, &output).unwrap(), output)
    }

    /// Runs a process that leaves by itself after these messages.
    async fn run(&mut self, commits: u64, attempts: &str) {
        let (mut process, output) = self.launch(commits, attempts, false);
        until_async("the process has left", async || (!process.is_alive()).then_some(())).await;
        let output = fs::read_to_string(output).unwrap();
        assert!(output.contains("test result: ok. 1 passed"), "run {}: {output}", self.runs);
    }

    /// Runs a process and kills it after these messages.
    async fn run_and_kill(&mut self, commits: u64, attempts: &str) {
        let (mut process, output) = self.launch(commits, attempts, true);
        let ready = self.path.join(READY_FILE);
        until_async("the process waits to be killed", async || {
            assert!(process.is_alive(), "{}", fs::read_to_string(&output).unwrap());
            ready.exists().then_some(())
        })
        .await;
        process.kill();
        fs::remove_file(ready).unwrap();
    }

    async fn publish(&self, partition: usize, payload: &str) {
        let embedded = Embedded::open(&self.path).unwrap();
        let backend: Arc<dyn Backend> = Arc::new(embedded.clone());
        publish(&log(&backend).await, partition, payload).await;
        embedded.close().await;
    }

    /// Returns failures and worker crashes at the next message of a partition.
    async fn counted(&self, partition: usize) -> (u64, u64) {
        let embedded = Embedded::open(&self.path).unwrap();
        let cursors = embedded.bucket(&settings().cursors).await.unwrap();
        let entry = cursors.get(&partition.to_string()).await.unwrap().expect("the cursor");
        embedded.close().await;
        let cursor: Value = serde_json::from_slice(&entry.value).unwrap();
        (cursor["failures"].as_u64().unwrap(), cursor["deaths"].as_u64().unwrap())
    }

    async fn dead_letters(&self) -> u64 {
        let embedded = Embedded::open(&self.path).unwrap();
        let letters = embedded.log(&settings().dead_letters).await.unwrap().info().await.unwrap().messages;
        embedded.close().await;
        letters
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clean_restarts_count_as_no_worker_crash_and_kill_9_as_one() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return run_workers(Path::new(&folder)).await;
    }
    let folder = tempdir().unwrap();
    let mut folder = Folder { path: folder.path().to_owned(), runs: 0 };
    for partition in 0..3 {
        folder.publish(partition, "now-0").await;
    }
    folder.run(3, "").await;

    // Partition 0 has a pending message in every run, partition 1 is idle, partition 2 commits one message per run.
    folder.publish(0, "later-1").await;
    for round in 1..=4 {
        folder.publish(2, &format!("now-{round}")).await;
        folder.run(1, "0").await;
        assert_eq!(folder.counted(0).await, (0, 0), "after {round} clean restarts");
    }
    folder.publish(1, "later-1").await;
    folder.run(0, "0,1").await;
    assert_eq!(folder.counted(1).await, (0, 0), "idle across clean restarts");

    for crashes in 1..=2 {
        folder.run_and_kill(0, "0,1").await;
        for _ in 0..2 {
            folder.run(0, "0,1").await;
            for partition in 0..2 {
                assert_eq!(folder.counted(partition).await, (0, crashes), "partition {partition}");
            }
        }
    }

    fs::write(folder.path.join(STORE_FILE), "").unwrap();
    folder.run(2, "").await;
    for partition in 0..2 {
        assert_eq!(folder.counted(partition).await, (0, 0), "partition {partition} after its commit");
    }
    assert_eq!(folder.dead_letters().await, 0);
    println!(
        "measured: {} processes, 2 of them killed: 2 worker crashes at each pending message",
        folder.runs
    );
}
