//! Several workers in one process, on a backend in memory, with a log and a handler that writes down what it sees.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_cluster::backend::{AppendCondition, Backend, Embedded, Log, LogConfig, StoreConfig};
use phalanx_cluster::core::Config;
use phalanx_cluster::{
    Builder, Delivery, Failure, Handler, HookError, Hooks, OwnedPartition, Problem, SubjectScheme, Worker,
};
use phalanx_testkit::wait::until_async;

pub(crate) fn settings() -> StoreConfig {
    StoreConfig {
        dead_letters: LogConfig::new("dead", ["dlq.*.*"]),
        dead_letter_prefix: "dlq".to_owned(),
        ..StoreConfig::of("tests")
    }
    .with_log(LogConfig::new("work", ["work.*"]), SubjectScheme::new("work", ""))
}

/// As in production, five times as fast.
pub(crate) fn config(fleet_size: u32) -> Config {
    let ms = Duration::from_millis;
    Config {
        heartbeat_interval: ms(400),
        lease_term: ms(2000),
        lease_renewal: ms(1000),
        claim_expiry: ms(6000),
        cold_start_window: ms(6000),
        scale_window: ms(1000),
        replacement_grace_period: ms(9000),
        poll_interval: ms(2000),
        fleet_size: Some(fleet_size),
        ..Config::default()
    }
}

pub(crate) fn partitions(count: usize) -> Vec<(String, u64)> {
    (0..count).map(|n| (n.to_string(), 1)).collect()
}

pub(crate) fn builder(backend: &Arc<dyn Backend>, config: Config, count: usize) -> Builder {
    Worker::builder(settings(), backend.clone()).config(config).partitions(partitions(count))
}

pub(crate) fn memory() -> Arc<dyn Backend> {
    Arc::new(Embedded::in_memory().unwrap())
}

pub(crate) async fn settled(workers: &[&Worker], count: usize) {
    until_async("every partition has one owner", async || {
        let owned: Vec<_> = workers
            .iter()
            .flat_map(|worker| worker.assignment().iter().cloned().collect::<Vec<_>>())
            .collect();
        let distinct: std::collections::BTreeSet<_> = owned.iter().collect();
        let versions: std::collections::BTreeSet<_> =
            workers.iter().map(|w| w.status().map_version.0).collect();
        (owned.len() == count && distinct.len() == count && versions.len() == 1).then_some(())
    })
    .await;
}

/// What was processed, by partition: payloads in the order of their ends.
#[derive(Clone, Default)]
pub(crate) struct Seen(pub(crate) Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl Seen {
    pub(crate) fn of(&self, partition: &str) -> Vec<String> {
        self.0.lock().unwrap().get(partition).cloned().unwrap_or_default()
    }

    pub(crate) fn total(&self) -> usize {
        self.0.lock().unwrap().values().map(Vec::len).sum()
    }
}

/// Writes down every message; `poison`, `fail`, `panic`, `slow`, and `hang` do what they say.
pub(crate) struct Writer {
    pub(crate) seen: Seen,
}

#[async_trait::async_trait]
impl Handler for Writer {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let text = String::from_utf8(delivery.payload.to_vec()).unwrap();
        match text.split('-').next().unwrap_or_default() {
            "poison" => return Err(Failure::Poison("it is poison".to_owned())),
            "fail" => return Err(Failure::Retry("it fails".to_owned())),
            "once" if delivery.attempt == 1 => {
                return Err(Failure::Retry("the first time it fails".to_owned()));
            }
            "panic" => panic!("as it was told to"),
            "hang" => std::future::pending().await,
            "slow" => tokio::time::sleep(Duration::from_millis(300)).await,
            _ => {}
        }
        if !delivery.may_write() {
            return Err(Failure::Unavailable);
        }
        self.seen.0.lock().unwrap().entry(delivery.partition.to_string()).or_default().push(text);
        Ok(())
    }
}

/// Writes down what it is told.
#[derive(Clone, Default)]
pub(crate) struct Told(pub(crate) Arc<Mutex<Vec<String>>>);

impl Told {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn has(&self, part: &str) -> bool {
        self.lines().iter().any(|line| line.contains(part))
    }

    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

#[async_trait::async_trait]
impl Hooks for Told {
    async fn on_assignment_changed(
        &self,
        added: Vec<OwnedPartition>,
        removed: Vec<Arc<str>>,
    ) -> Result<(), HookError> {
        for owned in added {
            self.note(format!("+{} {}", owned.partition, owned.fencing_token.unwrap_or_default()));
        }
        for partition in removed {
            self.note(format!("-{partition}"));
        }
        Ok(())
    }

    async fn on_state_changed(
        &self,
        from: phalanx_cluster::core::WorkerState,
        to: phalanx_cluster::core::WorkerState,
    ) -> Result<(), HookError> {
        self.note(format!("{from:?}>{to:?}"));
        Ok(())
    }

    async fn on_error(&self, problem: Problem) -> Result<(), HookError> {
        self.note(format!("error: {problem}"));
        Ok(())
    }
}

pub(crate) async fn log(backend: &Arc<dyn Backend>) -> Arc<dyn Log> {
    backend.log(&settings().log).await.unwrap()
}

pub(crate) async fn publish(log: &Arc<dyn Log>, partition: usize, payload: &str) {
    let id = format!("{partition}:{payload}");
    log.append(&format!("work.{partition}"), payload.to_owned().into(), AppendCondition::NewId(&id))
        .await
        .unwrap();
}
