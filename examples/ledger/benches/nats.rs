//! What coordination costs on a real NATS server: how long a message waits, and what a worker costs that has nothing to do.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]

#[path = "../tests/fleet/mod.rs"]
mod fleet;

use std::time::Duration;

use fleet::{Fleet, Member, Published, connect, map, owners, runs, until};
use phalanx_cluster::backend::Backend as _;
use phalanx_ledger::settings;
use phalanx_testkit::nats::Server;

/// Idle workers: more of them with `WORKERS=150`.
const WORKERS: usize = 30;
const RATE: u64 = 500;
const SECONDS: u64 = 20;

#[tokio::main]
async fn main() {
    waits().await;
    let workers = std::env::var("WORKERS").ok().and_then(|n| n.parse().ok()).unwrap_or(WORKERS);
    idles(workers).await;
}

async fn started(
    server: &Server,
    dir: &std::path::Path,
    parts: usize,
    size: usize,
) -> (Vec<Member>, phalanx_cluster_nats::Nats) {
    let fleet = Fleet {
        binary: env!("CARGO_BIN_EXE_ledger"),
        url: server.url(),
        dir: dir.to_owned(),
        parts,
        size,
        replicas: 1,
        history: 1,
        env: Vec::new(),
    };
    let members = (0..size).map(|n| fleet.start(&format!("w{n}"))).collect();
    let nats = connect(&server.url(), 1).await;
    until("a map for all", 120, async || map(&nats).await.filter(|(_, map)| owners(map).len() == size)).await;
    (members, nats)
}

/// From publishing to the start of the handler.
async fn waits() {
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (_members, nats) = started(&server, dir.path(), 500, 3).await;
    let log = nats.log(&settings(1).notifications).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let published = Published::default();
    let mut tick = tokio::time::interval(Duration::from_micros(1_000_000 / RATE));
    for n in 0..RATE * SECONDS {
        tick.tick().await;
        let (log, published) = (log.clone(), published.clone());
        // Nobody waits for the answer: the rate is kept.
        tokio::spawn(async move { published.publish(&log, (n * 211 % 500) as usize, n / 500).await });
    }
    let count = (RATE * SECONDS) as usize;
    until("all are processed", 60, async || {
        (runs(dir.path()).iter().filter(|run| run.end.is_some()).count() >= count).then_some(())
    })
    .await;
    let published = published.0.lock().unwrap().clone();
    let mut waits: Vec<f64> = runs(dir.path())
        .iter()
        .map(|run| run.start.saturating_sub(published[&run.id].2) as f64 / 1e6)
        .collect();
    waits.sort_by(f64::total_cmp);
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
    println!(
        "published to handler started, {RATE}/s, 500 partitions, 3 workers: p50 {:.2} ms, p99 {:.2} ms",
        at(0.5),
        at(0.99)
    );
}

/// A fleet without messages.
async fn idles(workers: usize) {
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (members, _nats) = started(&server, dir.path(), 5000, workers).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let pids: Vec<u32> = members.iter().map(|member| member.process.id()).collect();
    let before: u64 = pids.iter().map(|pid| ticks(*pid)).sum();
    let server_before = ticks(server.id());
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let used = pids.iter().map(|pid| ticks(*pid)).sum::<u64>() - before;
    let server_used = ticks(server.id()) - server_before;
    // A tick is a hundredth of a second, so ticks per second are percents of a core.
    let percent = |ticks: u64| ticks as f64 / SECONDS as f64;
    let memory = pids.iter().map(|pid| resident_kib(*pid)).max().unwrap_or_default();
    println!(
        "idle worker in a fleet of {workers} with 5,000 partitions: {:.2} % of a core, {:.1} MB; the server: {:.1} % of a core",
        percent(used) / workers as f64,
        memory as f64 / 1024.0,
        percent(server_used),
    );
}

/// Time on a processor, by what the kernel says.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
