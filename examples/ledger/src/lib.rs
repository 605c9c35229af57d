//! The ledger: partitions are the numbers 0…N−1, and a message is `id part seq published_ns`. Whoever processes one writes
//! down when it began and when it ended, so that anybody can check afterwards that nothing was lost, doubled, overtaken or
//! done by two at once.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use clap::Parser;
use phalanx_cluster::backend::{Backend, LogConfig, StoreConfig};
use phalanx_cluster::core::Config;
use phalanx_cluster::{
    Decoded, Delivery, Failure, Handler, HookError, Hooks, Problem, Role, SubjectScheme, Worker, WorkerHandle,
};
use phalanx_cluster_nats::Nats;
use tokio::signal::unix::{SignalKind, signal};

/// How long a message takes.
const WORK: Duration = Duration::from_millis(20);

/// A worker that writes down what it does.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Args {
    /// The NATS servers, separated by commas.
    #[arg(long, default_value = "nats://127.0.0.1:4222")]
    pub url: String,
    /// Where handle-{name}.log and event-{name}.log are written.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// What this worker is called.
    #[arg(long)]
    pub name: String,
    /// How many partitions there are.
    #[arg(long, default_value_t = 100)]
    pub parts: usize,
    /// How many workers there should be.
    #[arg(long, env = "FLEET_SIZE")]
    pub fleet_size: Option<u32>,
    /// How many servers keep each bucket and log.
    #[arg(long, env = "NATS_REPLICAS", default_value_t = 1)]
    pub replicas: usize,
    /// How many values of a cursor are kept.
    #[arg(long, default_value_t = 1)]
    pub history: u8,
    /// How often every partition is looked at, in seconds.
    #[arg(long, default_value_t = 10)]
    pub sweep: u64,
}

/// Returns the buckets and logs of the group `ledger`, with stream `WORK` and its subjects `work.{n}` as the log.
pub fn settings(history: u8) -> StoreConfig {
    let mut settings = StoreConfig::of("ledger").with_log(LogConfig::new("WORK", ["work.*"]), subjects());
    settings.cursors.history = history;
    settings
}

/// The subject of a partition.
pub fn subjects() -> SubjectScheme {
    SubjectScheme::new("work", "")
}

/// Nanoseconds since 1970.
pub fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

/// A file that is appended to, each line in one write.
#[derive(Debug)]
struct Lines(File);

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(file.with_context(|| format!("opening {}", path.display()))?))
    }

    fn write(&self, line: &str) -> std::io::Result<()> {
        (&self.0).write_all(format!("{line}\n").as_bytes())
    }
}

/// Writes down when a message began and when it ended.
#[derive(Debug)]
pub struct Ledger {
    lines: Lines,
    /// What happens right before a message counts as processed; nothing, but in tests.
    before_commit: fn(&str),
}

#[async_trait]
impl Handler for Ledger {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let poison =
            |what: &str| Failure::Poison(format!("the payload is not `id part seq published_ns`: {what}"));
        let text = std::str::from_utf8(&delivery.payload).map_err(|e| poison(&e.to_string()))?;
        let [id, part, seq, _] = text.split(' ').collect::<Vec<_>>()[..] else { return Err(poison(text)) };
        let attempt = delivery.attempt;
        let note = |what: &str| self.lines.write(&format!("{what} {id} {part} {seq} {} {attempt}", now_ns()));
        // A full disk is no fault of the message.
        note("S").map_err(|_| Failure::Unavailable)?;
        tokio::time::sleep(WORK).await;
        note("E").map_err(|_| Failure::Unavailable)?;
        (self.before_commit)(id);
        Ok(())
    }

    fn decode(&self, _: &str, payload: &[u8]) -> Decoded {
        let message_id = String::from_utf8_lossy(payload).split(' ').next().map(str::to_owned);
        Decoded { message_id, value: None }
    }
}

/// Writes what a person should know to stderr.
#[derive(Debug)]
struct ToStderr(String);

#[async_trait]
impl Hooks for ToStderr {
    async fn on_error(&self, problem: Problem) -> Result<(), HookError> {
        eprintln!("{} {}: {problem}", now_ns(), self.0);
        Ok(())
    }
}

/// Runs a worker until SIGTERM or ctrl-c, over `decorate(NATS)`.
pub async fn run(
    args: Args,
    decorate: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
    before_commit: fn(&str),
) -> Result<()> {
    let Args { url, dir, name, parts, fleet_size, replicas, history, sweep } = args;
    let events = Lines::open(&dir.join(format!("event-{name}.log")))?;
    let handles = Lines::open(&dir.join(format!("handle-{name}.log")))?;
    let config = phalanx_cluster_nats::Config {
        replicas,
        name: name.clone(),
        ..phalanx_cluster_nats::Config::new(url)
    };
    let usual = Config::default();
    let timing = Config {
        fleet_size,
        // As many ids as there should be workers, however many that are.
        max_workers: usual.max_workers.max(fleet_size.unwrap_or_default()),
        poll_interval: Duration::from_secs(sweep),
        ..usual
    };
    let nats = Nats::connect(&config).await?;
    let worker = Worker::builder(settings(history), decorate(Arc::new(nats)))
        .config(timing)
        .partitions((0..parts).map(|n| (n.to_string(), 1)).collect::<Vec<_>>())
        .handler(Ledger { lines: handles, before_commit })
        .hooks(ToStderr(name.clone()))
        .pod(&name, &name)
        .start()
        .await?;
    let reporting = tokio::spawn(report(worker.handle(), events));
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    worker.shutdown().await;
    reporting.await?
}

/// Writes down when the worker got an id, and when it began and ceased to lead.
async fn report(worker: WorkerHandle, events: Lines) -> Result<()> {
    let (mut id, mut leads) = (None, false);
    loop {
        worker
            .wait_until(|now| now.holder.map(|h| h.id.0) != id || (now.role == Role::Leader) != leads)
            .await;
        let status = worker.status();
        let now = status.holder.map(|holder| holder.id.0);
        if now != id {
            id = now;
            if let Some(id) = id {
                events.write(&format!("{} ready {id}", now_ns()))?;
            }
        }
        if leads != (status.role == Role::Leader) {
            leads = !leads;
            events.write(&format!("{} leader {leads}", now_ns()))?;
        }
        if status.ended {
            return Ok(());
        }
    }
}
