//! The load that the peers had: one NATS node, 10 ledgers, 500 partitions, 200 msg/s for 90 s; kill -9 of a worker at 20 s
//! and of the leader at 40 s, both stay dead; SIGSTOP of a worker from 55 to 70 s; SIGTERM and restart of one at 75 s; count
//! until 150 s. With `STANDBYS=3` there is a standby for each that is lost.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]

#[path = "../tests/fleet/mod.rs"]
mod fleet;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet::{Fleet, Member, Published, Run, commits, connect, cursor_history, map, owners, runs};
use phalanx_cluster::backend::{Backend as _, Log};
use phalanx_ledger::{now_ns, settings};
use phalanx_testkit::nats::Server;
use phalanx_testkit::wait::until_async;

const PARTS: usize = 500;
const HISTORY: u8 = 64;

#[tokio::main]
async fn main() {
    let standbys: usize = std::env::var("STANDBYS").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fleet = Fleet {
        binary: env!("CARGO_BIN_EXE_ledger"),
        url: server.url(),
        dir: dir.path().to_owned(),
        parts: PARTS,
        size: 10,
        replicas: 1,
        history: HISTORY,
        env: Vec::new(),
    };
    let mut members: Vec<Member> = (0..10).map(|n| fleet.start(&format!("w{n}"))).collect();
    let nats = connect(&server.url(), 1).await;
    until_async("a map for ten", async || map(&nats).await.filter(|(_, map)| owners(map).len() == 10)).await;
    let waiting: Vec<Member> = (0..standbys).map(|n| fleet.start(&format!("s{n}"))).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let versions = map(&nats).await.unwrap().0;
    let log = nats.log(&settings(HISTORY).log).await.unwrap();
    let published = Published::default();
    let began = Instant::now();
    let publishing = tokio::spawn(publish(log, published.clone()));
    let at = |second| tokio::time::sleep_until((began + Duration::from_secs(second)).into());

    let mut kills = Vec::new();
    let mut maps = vec![versions];
    at(20).await;
    let victim = members.iter().position(|member| !member.leads()).unwrap();
    kills.push(kill(&mut members, victim, &map(&nats).await.unwrap().1));
    at(40).await;
    maps.push(map(&nats).await.unwrap().0);
    let with_standbys = |members: &[Member]| members.iter().position(Member::leads);
    if let Some(leader) = with_standbys(&members) {
        kills.push(kill(&mut members, leader, &map(&nats).await.unwrap().1));
    }
    at(55).await;
    maps.push(map(&nats).await.unwrap().0);
    let sleeper = members.iter().position(|member| !member.leads()).unwrap();
    members[sleeper].process.pause();
    at(70).await;
    members[sleeper].process.resume();
    at(75).await;
    maps.push(map(&nats).await.unwrap().0);
    let restarted = members.iter().position(|m| !m.leads() && m.name != members[sleeper].name).unwrap();
    let mut member = members.remove(restarted);
    member.process.terminate(Duration::from_secs(30));
    members.push(fleet.start(&member.name));
    publishing.await.unwrap();
    at(150).await;

    let published = published.0.lock().unwrap().clone();
    let cursors = cursor_history(&nats, HISTORY).await;
    let ids: Vec<&str> =
        cursors.values().flat_map(|values| commits(values)).map(|commit| commit.context.as_str()).collect();
    let distinct: BTreeSet<&str> = ids.iter().copied().collect();
    let runs = runs(dir.path());
    let (overlaps, disorder) = books(&runs);
    println!("| messages | lost | committed twice | processed again | overlaps | out of order | versions |");
    println!("|---|---|---|---|---|---|---|");
    println!(
        "| {} | {} | {} | {} | {overlaps} | {disorder} | {} |",
        published.len(),
        published.keys().filter(|id| !distinct.contains(id.as_str())).count(),
        ids.len() - distinct.len(),
        runs.iter().filter(|run| run.end.is_some()).count() - published.len(),
        map(&nats).await.unwrap().0 - versions,
    );
    maps.push(map(&nats).await.unwrap().0);
    let new: Vec<String> = ["worker killed", "leader killed", "worker paused", "worker restarted"]
        .iter()
        .zip(maps.windows(2))
        .map(|(what, maps)| format!("{what}: {}", maps[1] - maps[0]))
        .collect();
    println!("new maps: {}", new.join(", "));
    for (what, (at, name, parts)) in ["worker", "leader"].iter().zip(&kills) {
        let first =
            |part: &usize| runs.iter().find(|r| r.part == *part && r.start > *at && r.worker != *name);
        let worst = parts.iter().filter_map(first).filter(|r| published[&r.id].2 < at + 6 * fleet::SECOND);
        let worst = worst.map(|run| (run.start - at) as f64 / 1e9).fold(0.0, f64::max);
        println!("{what} killed: its {} partitions are served again after {worst:.2} s at most", parts.len());
    }
    drop(waiting);
}

async fn publish(log: Arc<dyn Log>, published: Published) {
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    for n in 0..18_000_u64 {
        tick.tick().await;
        // Every partition in turn, in an order that jumps about.
        published.publish(&log, (n * 211 % PARTS as u64) as usize, n / PARTS as u64).await;
    }
}

fn kill(
    members: &mut Vec<Member>,
    victim: usize,
    map: &BTreeMap<usize, u32>,
) -> (u128, String, BTreeSet<usize>) {
    let mut member = members.remove(victim);
    let id = member.id().unwrap();
    let at = now_ns();
    member.process.kill();
    (at, member.name, map.iter().filter(|(_, owner)| **owner == id).map(|(part, _)| *part).collect())
}

/// How often two workers were on one partition at once, and how often a message ended after a later one.
fn books(runs: &[Run]) -> (usize, usize) {
    let mut by_part: BTreeMap<usize, Vec<&Run>> = BTreeMap::new();
    runs.iter().for_each(|run| by_part.entry(run.part).or_default().push(run));
    let (mut overlaps, mut disorder) = (0, 0);
    for runs in by_part.values() {
        let other = |pair: &&[&Run]| pair[0].worker != pair[1].worker;
        overlaps += runs
            .windows(2)
            .filter(other)
            .filter(|pair| pair[0].end.is_some_and(|end| end > pair[1].start))
            .count();
        let mut newest = 0;
        for run in runs.iter().filter(|run| run.end.is_some()) {
            disorder += usize::from(run.seq < newest);
            newest = newest.max(run.seq);
        }
    }
    (overlaps, disorder)
}
