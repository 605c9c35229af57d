//! A worker stands still at the worst moment, another goes on, and what the first does when it wakes changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::fleet::{
    Fleet, MACHINE, Member, Published, commits, connect, cursor_history, history, map, owners, runs,
};
use phalanx_cluster::backend::Backend as _;
use phalanx_cluster_nats::Nats;
use phalanx_ledger::settings;
use phalanx_testkit::nats::Server;
use phalanx_testkit::wait::until_async;

fn fleet(server: &Server, dir: &Path, halt: (&str, &str), size: usize) -> Fleet {
    let mark = dir.join("halted").to_string_lossy().into_owned();
    Fleet {
        binary: env!("CARGO_BIN_EXE_ledger-halting"),
        url: server.url(),
        dir: dir.to_owned(),
        parts: 12,
        size,
        replicas: 1,
        history: 64,
        env: vec![(halt.0.to_owned(), halt.1.to_owned()), ("HALT_MARK".to_owned(), mark)],
    }
}

/// Whether a process is stopped by a signal, by what the kernel says.
fn stands_still(member: &Member) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", member.process.id())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
}

async fn halted(members: &[Member]) -> usize {
    until_async("one stands still", async || members.iter().position(stands_still)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stood_still_between_its_results_and_the_commit_cannot_commit_any_more() {
    let _machine = MACHINE.read().await;
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fleet = fleet(&server, dir.path(), ("HALT_ON", "0-5"), 2);
    let members: Vec<Member> = ["anna", "berta"].iter().map(|name| fleet.start(name)).collect();
    let nats = connect(&server.url(), 1).await;
    until_async("a map for two", async || map(&nats).await.filter(|(_, map)| owners(map).len() == 2)).await;
    let log = nats.log(&settings(64).log).await.unwrap();
    let published = Published::default();
    for seq in 0..10 {
        published.publish(&log, 0, seq).await;
    }
    let sleeper = halted(&members).await;
    let ended = |worker: &str| {
        runs(dir.path()).iter().any(|run| run.id == "0-5" && run.worker == worker && run.end.is_some())
    };
    assert!(ended(&members[sleeper].name), "it stood still before its results were written");
    let all_committed = async || {
        let values = cursor_history(&nats, 64).await.remove(&0)?;
        (commits(&values).len() == 10).then_some(values)
    };
    let before = until_async("the successor commits all", all_committed).await;
    assert!(ended(&members[1 - sleeper].name), "the successor processed it again");
    members[sleeper].process.resume();
    for seq in 10..20 {
        published.publish(&log, 0, seq).await;
        published.publish(&log, 1, seq).await;
    }
    until_async("it serves again", async || {
        let (_, map) = map(&nats).await?;
        (owners(&map).len() == 2 && owners(&map).contains(&members[sleeper].id()?)).then_some(())
    })
    .await;
    let values = until_async("the rest is committed", async || {
        let values = cursor_history(&nats, 64).await.remove(&0)?;
        (commits(&values).len() >= 20).then_some(values)
    })
    .await;
    let ids: Vec<&str> = commits(&values).iter().map(|commit| commit.context.as_str()).collect();
    let expected: Vec<String> = (0..20).map(|seq| format!("0-{seq}")).collect();
    assert_eq!(ids, expected, "each is committed once and in order");
    let taken = before.iter().map(|value| value.take).max();
    assert!(
        values.windows(2).all(|pair| pair[0].take <= pair[1].take),
        "an old take came back after {taken:?}"
    );
}

/// Every map that the bucket still holds: version, epoch, owners as text.
async fn maps(nats: &Nats) -> Vec<(u64, u64, String)> {
    let bucket = nats.bucket(&settings(64).assignments).await.unwrap();
    let maps = history(&*bucket).await.into_iter().filter(|entry| entry.key == "current");
    maps.map(|entry| {
        let json: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
        let number = |name: &str| json[name].as_u64().unwrap();
        (number("version"), number("leaderEpoch"), json["assignments"].to_string())
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stood_still_between_computing_and_publishing_publishes_nothing() {
    let _machine = MACHINE.read().await;
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fleet = fleet(&server, dir.path(), ("HALT_BEFORE_MAP", "2"), 4);
    let mut members: Vec<Member> =
        ["anna", "berta", "clara", "dora"].iter().map(|name| fleet.start(name)).collect();
    let nats = connect(&server.url(), 1).await;
    until_async("a map for four", async || map(&nats).await.filter(|(_, map)| owners(map).len() == 4)).await;
    let old_epoch = maps(&nats).await.last().unwrap().1;
    let victim = members.iter().position(|member| !member.leads()).unwrap();
    members[victim].process.kill();
    members.remove(victim);
    let sleeper = halted(&members).await;
    assert!(members[sleeper].leads(), "the one that stands still leads");
    until_async("another publishes version 2", async || {
        map(&nats).await.filter(|(version, _)| *version >= 2)
    })
    .await;
    until_async("another leads", async || {
        members.iter().enumerate().any(|(n, member)| n != sleeper && member.leads()).then_some(())
    })
    .await;
    members[sleeper].process.resume();
    until_async("the old leader has noticed", async || (!members[sleeper].leads()).then_some(())).await;
    until_async("it is given partitions again", async || {
        let (_, map) = map(&nats).await?;
        (owners(&map).len() == 3 && owners(&map).contains(&members[sleeper].id()?)).then_some(())
    })
    .await;
    let maps = maps(&nats).await;
    let mut contents: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for (version, epoch, owners) in &maps {
        contents.entry(*version).or_default().insert(owners);
        assert!(*version == 1 || *epoch > old_epoch, "version {version} is the old leader's: {maps:?}");
    }
    assert!(contents.values().all(|owners| owners.len() == 1), "two maps of one version: {maps:?}");
    assert!(maps.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1), "{maps:?}");
    assert_eq!(members.iter().filter(|member| member.leads()).count(), 1);
}
