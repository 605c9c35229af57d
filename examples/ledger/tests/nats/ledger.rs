//! The ledger on a real server: three workers, a crash, a restart, and books that balance.

use std::collections::BTreeSet;

use crate::fleet::{Fleet, MACHINE, Member, Published, commits, connect, cursor_history, map, owners, runs};
use phalanx_cluster::backend::Backend as _;
use phalanx_ledger::settings;
use phalanx_testkit::nats::Server;
use phalanx_testkit::wait::until_async;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_share_the_work_and_one_that_is_killed_loses_nothing() {
    let _machine = MACHINE.read().await;
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fleet = Fleet {
        binary: env!("CARGO_BIN_EXE_ledger"),
        url: server.url(),
        dir: dir.path().to_owned(),
        parts: 30,
        size: 3,
        replicas: 1,
        history: 64,
        env: Vec::new(),
    };
    let mut members: Vec<Member> = ["anna", "berta", "clara"].iter().map(|name| fleet.start(name)).collect();
    let nats = connect(&server.url(), 1).await;
    until_async("a map for three", async || map(&nats).await.filter(|(_, map)| owners(map).len() == 3)).await;
    let log = nats.log(&settings(64).log).await.unwrap();
    let published = Published::default();
    for n in 0..300 {
        published.publish(&log, n % 30, n as u64 / 30).await;
    }
    let victim = members.iter().position(|member| !member.leads()).unwrap();
    members[victim].process.kill();
    for n in 300..600 {
        published.publish(&log, n % 30, n as u64 / 30).await;
    }
    let all_committed = async || {
        let cursors = cursor_history(&nats, 64).await;
        let count: usize = cursors.values().map(|values| commits(values).len()).sum();
        (count >= 600).then_some(cursors)
    };
    let cursors = until_async("600 commits", all_committed).await;
    let ids: Vec<String> =
        cursors.values().flat_map(|values| commits(values)).map(|commit| commit.context.clone()).collect();
    assert_eq!((ids.len(), ids.iter().collect::<BTreeSet<_>>().len()), (600, 600));
    let ended: BTreeSet<String> =
        runs(dir.path()).into_iter().filter(|run| run.end.is_some()).map(|run| run.id).collect();
    assert_eq!(ended.len(), 600);
    for member in &mut members {
        if member.process.is_alive() {
            let status = member.process.terminate(Duration::from_secs(20)).expect("it leaves by itself");
            assert!(status.success(), "{status}");
        }
    }
    drop(server);
}
