//! What coordination costs on a real NATS server: how long a message waits, and what a worker costs that has nothing to do.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]

#[path = "../tests/fleet/mod.rs"]
mod fleet;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet::{Fleet, Member, Published, connect, map, owners, runs};
use phalanx_cluster::backend::{Backend as _, Log, WatchEvent};
use phalanx_cluster_nats::Nats;
use phalanx_ledger::{now_ns, settings};
use phalanx_testkit::nats::Server;
use phalanx_testkit::wait::until_async;

const RATE: u64 = 500;
const SECONDS: u64 = 20;
/// The partitions of one worker of thirty.
const SHARE: usize = 167;

#[tokio::main]
async fn main() {
    waits().await;
    map_applied(1).await;
    map_applied(30).await;
    id_inherited().await;
    hand_over().await;
    crash(0).await;
    crash(1).await;
    idles(30).await;
    idles(150).await;
}

fn fleet_of(server: &Server, dir: &Path, parts: usize, size: usize) -> Fleet {
    Fleet {
        binary: env!("CARGO_BIN_EXE_ledger"),
        url: server.url(),
        dir: dir.to_owned(),
        parts,
        size,
        replicas: 1,
        history: 1,
        env: Vec::new(),
    }
}

async fn started(server: &Server, dir: &Path, parts: usize, size: usize) -> (Vec<Member>, Nats) {
    let fleet = fleet_of(server, dir, parts, size);
    let members = (0..size).map(|n| fleet.start(&format!("w{n}"))).collect();
    let nats = connect(&server.url(), 1).await;
    until_async("a map for all", async || map(&nats).await.filter(|(_, map)| owners(map).len() == size))
        .await;
    (members, nats)
}

/// The value below which that share of the values lies.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

/// How long after the publication of the map each worker starts its first message, where a message waits in every
/// partition. The whole of it lies between: the map is read, 167 cursors are taken, and the log is read.
async fn map_applied(workers: usize) {
    let parts = SHARE * workers;
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let nats = connect(&server.url(), 1).await;
    let log = nats.log(&settings(1).log).await.unwrap();
    let published = Published::default();
    for part in 0..parts {
        published.publish(&log, part, 0).await;
    }
    let (_members, nats) = started(&server, dir.path(), parts, workers).await;
    let bucket = nats.bucket(&settings(1).assignments).await.unwrap();
    let stored_at = u128::from(bucket.get("current").await.unwrap().unwrap().stored_at) * 1_000;
    until_async("every worker has begun", async || {
        let begun: BTreeSet<String> = runs(dir.path()).into_iter().map(|run| run.worker).collect();
        (begun.len() == workers).then_some(())
    })
    .await;
    let mut first: BTreeMap<String, u128> = BTreeMap::new();
    for run in runs(dir.path()) {
        let known = first.entry(run.worker).or_insert(run.start);
        *known = run.start.min(*known);
    }
    let mut waits: Vec<f64> =
        first.values().map(|start| start.saturating_sub(stored_at) as f64 / 1e6).collect();
    println!(
        "map published to first message started, {workers} workers x {SHARE} partitions: p50 {:.0} ms, worst {:.0} ms",
        quantile(&mut waits, 0.5),
        quantile(&mut waits, 1.0)
    );
}

/// How long after a worker gave its id back its standby starts the first message: the id is claimed, cursors are taken,
/// and the log is read.
async fn id_inherited() {
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (mut members, nats) = started(&server, dir.path(), SHARE, 1).await;
    let _standby = fleet_of(&server, dir.path(), SHARE, 1).start("standby");
    let heartbeats = nats.bucket(&settings(1).heartbeats).await.unwrap();
    until_async("a standby", async || {
        let keys = heartbeats.keys().await.unwrap();
        keys.iter().any(|key| key.starts_with("standby-")).then_some(())
    })
    .await;
    let mut ids = nats.bucket(&settings(1).stable_ids).await.unwrap().watch().await.unwrap();
    while ids.next().await != Some(WatchEvent::Current) {}
    let log = nats.log(&settings(1).log).await.unwrap();
    let publishing = tokio::spawn(steadily(log, Published::default(), SHARE, 10));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut first = members.remove(0);
    let leaving = tokio::task::spawn_blocking(move || first.process.terminate(Duration::from_secs(30)));
    while !matches!(ids.next().await, Some(WatchEvent::Delete { .. })) {}
    let released = now_ns();
    leaving.await.unwrap();
    publishing.await.unwrap();
    let starts = runs(dir.path()).into_iter().filter(|run| run.worker == "standby").map(|run| run.start);
    let first = starts.min().unwrap().saturating_sub(released) as f64 / 1e6;
    println!("id released to first message started by the standby, {SHARE} partitions: {first:.0} ms");
}

/// How long a partition that moves to a new worker stands still: the longest wait of its messages, those of partitions
/// that stay beside it.
async fn hand_over() {
    const PARTS: usize = 500;
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (_members, nats) = started(&server, dir.path(), PARTS, 10).await;
    let log = nats.log(&settings(1).log).await.unwrap();
    let before = map(&nats).await.unwrap();
    let published = Published::default();
    let publishing = tokio::spawn(steadily(log, published.clone(), PARTS, 25));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let sizes = nats.bucket(&settings(1).assignments).await.unwrap();
    sizes.put("fleet-size", "{\"v\":1,\"fleetSize\":11}".into()).await.unwrap();
    let _eleventh = fleet_of(&server, dir.path(), PARTS, 10).start("w10");
    let after =
        until_async("a map for eleven", async || map(&nats).await.filter(|(version, _)| *version > before.0))
            .await;
    publishing.await.unwrap();
    until_async("all are processed", async || {
        (runs(dir.path()).iter().filter(|run| run.end.is_some()).count() >= published.len()).then_some(())
    })
    .await;
    let published = published.0.lock().unwrap().clone();
    let (mut moved, mut stayed) = (Vec::new(), Vec::new());
    let mut longest: BTreeMap<usize, f64> = BTreeMap::new();
    for run in runs(dir.path()) {
        let wait = run.start.saturating_sub(published[&run.id].2) as f64 / 1e6;
        let known = longest.entry(run.part).or_default();
        *known = known.max(wait);
    }
    for (part, wait) in longest {
        if before.1[&part] == after.1[&part] { &mut stayed } else { &mut moved }.push(wait);
    }
    println!(
        "hand-over to an eleventh worker, {} of {PARTS} partitions, 500 msg/s: longest wait p50 {:.0} ms, p99 {:.0} ms; \
         of those that stay p50 {:.0} ms, p99 {:.0} ms",
        moved.len(),
        quantile(&mut moved, 0.5),
        quantile(&mut moved, 0.99),
        quantile(&mut stayed, 0.5),
        quantile(&mut stayed, 0.99),
    );
}

/// Every partition in turn, [`RATE`] a second.
async fn steadily(log: Arc<dyn Log>, published: Published, parts: usize, seconds: u64) {
    let mut tick = tokio::time::interval(Duration::from_micros(1_000_000 / RATE));
    for n in 0..RATE * seconds {
        tick.tick().await;
        let (log, published) = (log.clone(), published.clone());
        let parts = parts as u64;
        // Nobody waits for the answer: the rate is kept.
        tokio::spawn(async move { published.publish(&log, (n * 211 % parts) as usize, n / parts).await });
    }
}

/// kill -9 of a worker: when its partitions are served again, with and without a standby.
async fn crash(standbys: usize) {
    const PARTS: usize = 100;
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (mut members, nats) = started(&server, dir.path(), PARTS, 5).await;
    let fleet = fleet_of(&server, dir.path(), PARTS, 5);
    let _waiting: Vec<Member> = (0..standbys).map(|n| fleet.start(&format!("s{n}"))).collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let log = nats.log(&settings(1).log).await.unwrap();
    let published = Published::default();
    let publishing = tokio::spawn(steadily(log, published.clone(), PARTS, 15));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let victim = members.iter().position(|member| !member.leads()).unwrap();
    let (version, owned) = map(&nats).await.unwrap();
    let mut member = members.remove(victim);
    let id = member.id().unwrap();
    let at = now_ns();
    member.process.kill();
    publishing.await.unwrap();
    until_async("all are processed", async || {
        let done: BTreeSet<String> =
            runs(dir.path()).into_iter().filter(|run| run.end.is_some()).map(|run| run.id).collect();
        (done.len() >= published.len()).then_some(())
    })
    .await;
    let mut again: BTreeMap<usize, u128> = BTreeMap::new();
    for run in runs(dir.path()).into_iter().filter(|run| run.start > at && owned[&run.part] == id) {
        again.entry(run.part).or_insert(run.start - at);
    }
    let worst = again.values().max().copied().unwrap_or_default() as f64 / 1e9;
    println!(
        "kill -9 of a worker with {standbys} standbys: its {} partitions served again after {worst:.2} s at most; new maps: {}",
        again.len(),
        map(&nats).await.unwrap().0 - version,
    );
}

/// From publishing to the start of the handler.
async fn waits() {
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (_members, nats) = started(&server, dir.path(), 500, 3).await;
    let log = nats.log(&settings(1).log).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let published = Published::default();
    steadily(log, published.clone(), 500, SECONDS).await;
    let count = (RATE * SECONDS) as usize;
    until_async("all are processed", async || {
        (runs(dir.path()).iter().filter(|run| run.end.is_some()).count() >= count).then_some(())
    })
    .await;
    let published = published.0.lock().unwrap().clone();
    let mut waits: Vec<f64> = runs(dir.path())
        .iter()
        .map(|run| run.start.saturating_sub(published[&run.id].2) as f64 / 1e6)
        .collect();
    println!(
        "published to handler started, {RATE}/s, 500 partitions, 3 workers: p50 {:.2} ms, p99 {:.2} ms",
        quantile(&mut waits, 0.5),
        quantile(&mut waits, 0.99)
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
    let messages_before = messages(&server);
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let used = pids.iter().map(|pid| ticks(*pid)).sum::<u64>() - before;
    let server_used = ticks(server.id()) - server_before;
    let messages = messages(&server) - messages_before;
    // A tick is a hundredth of a second, so ticks per second are percents of a core.
    let percent = |ticks: u64| ticks as f64 / SECONDS as f64;
    let memory = pids.iter().map(|pid| resident_kib(*pid)).max().unwrap_or_default();
    println!(
        "idle worker in a fleet of {workers} with 5,000 partitions: {:.2} % of a core, {:.1} MB, {:.0} messages/s \
         sent and received; the server: {:.1} % of a core",
        percent(used) / workers as f64,
        memory as f64 / 1024.0,
        messages as f64 / SECONDS as f64 / workers as f64,
        percent(server_used),
    );
}

/// What went in and out of the server so far.
fn messages(server: &Server) -> u64 {
    let counts: serde_json::Value = serde_json::from_str(&server.varz().unwrap()).unwrap();
    counts["in_msgs"].as_u64().unwrap() + counts["out_msgs"].as_u64().unwrap()
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
