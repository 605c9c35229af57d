//! Two defenders as processes of their own on a real NATS and a real Cassandra, one killed with -9 and one that stands
//! still for 15 s: nothing is lost, nothing is double, and all that is stored is what a recomputation gives.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fleet::{assert_as_recomputed, assert_each_once, chamber, chunks, options, start, time};
use phalanx_cluster::backend::{Backend, Stores};
use phalanx_cluster_nats::Nats;
use phalanx_defender::collector::Collector;
use phalanx_defender::names::store_config;
use phalanx_defender::store::cassandra::Config;
use phalanx_defender::store::{Cassandra, ChartStore};
use phalanx_defender::weights;
use phalanx_fab::Fab;
use phalanx_testkit::cassandra::Keyspace;
use phalanx_testkit::nats::Server;
use phalanx_testkit::process::{Lifetime, Process, bound_to_parent};
use phalanx_testkit::wait::until_async;

const CHAMBERS: usize = 8;
const RUNS: u64 = 60;
const NATS: &str = "PHALANX_TEST_NATS";
const HOSTS: &str = "PHALANX_TEST_CASSANDRA";
const KEYSPACE: &str = "PHALANX_TEST_KEYSPACE";
/// How long one stands still.
const PAUSE: Duration = Duration::from_secs(15);

async fn connect(url: &str, hosts: &str, keyspace: &str) -> (Arc<dyn Backend>, Arc<dyn ChartStore>) {
    let nats = Nats::connect(&phalanx_cluster_nats::Config::new(url)).await.unwrap();
    let config = Config { keyspace: keyspace.to_owned(), ..Config::new(hosts) };
    (Arc::new(nats), Arc::new(Cassandra::connect(&config).await.unwrap()))
}

/// One of the processes.
#[test]
#[ignore = "a process of the other test"]
fn defender_process() {
    let Ok(url) = std::env::var(NATS) else { return };
    let variable = |name: &str| std::env::var(name).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (backend, store) = connect(&url, &variable(HOSTS), &variable(KEYSPACE)).await;
        let _defender = start(&backend, &store, options(2)).await;
        std::future::pending::<()>().await;
    });
}

/// How many chambers have committed their last run.
async fn finished(stores: &Stores) -> usize {
    let last = format!("run-{:06}", RUNS - 1);
    let mut count = 0;
    for key in stores.cursors.keys().await.unwrap() {
        let Some(entry) = stores.cursors.get(&key).await.unwrap() else { continue };
        let cursor: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
        count += usize::from(cursor["contextId"] == last.as_str());
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_one_killed_and_one_paused_lose_nothing_and_double_nothing() {
    let server = Server::start().unwrap();
    let keyspace = tokio::task::spawn_blocking(Keyspace::create).await.unwrap().unwrap();
    let config = Config { keyspace: keyspace.name().to_owned(), ..Config::new(keyspace.hosts()) };
    Cassandra::apply(&config, None).await.unwrap();
    let (backend, store) = connect(&server.url(), keyspace.hosts(), keyspace.name()).await;
    let stores = Stores::open(&*backend, &store_config()).await.unwrap();
    let fab = Fab::new(7, CHAMBERS);
    store.put_metadata(&weights::import(&fab.chambers_csv(), jiff::Timestamp::now()).unwrap()).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let launch = |name: &str| {
        let mut command = bound_to_parent(&std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "crash_and_pause::defender_process", "--nocapture"]);
        command.env(NATS, server.url()).env(HOSTS, keyspace.hosts()).env(KEYSPACE, keyspace.name());
        Process::start(command, Lifetime::WithUs, &log(folder.path(), name)).unwrap()
    };
    let (mut anna, berta) = (launch("anna"), launch("berta"));

    // The tools send all the while.
    let sent = Arc::new(AtomicU64::new(0));
    let sending = tokio::spawn({
        let (sent, fab) = (sent.clone(), fab.clone());
        let collector = Collector::new(store.clone(), stores.log.clone());
        async move {
            for run in 0..RUNS {
                for number in 0..CHAMBERS {
                    let (context, chunks) = chunks(&fab, number, run);
                    collector.submit(&chamber(&fab, number), &context, time(run), &chunks).await.unwrap();
                }
                sent.store(run + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
        }
    });
    let sent = |runs: u64| {
        let sent = sent.clone();
        async move {
            until_async("it is sent", async || (sent.load(Ordering::SeqCst) >= runs).then_some(())).await
        }
    };
    // In the middle of the baselines.
    sent(12).await;
    anna.kill();
    sent(16).await;
    let _carla = launch("carla");
    // With running averages.
    sent(36).await;
    berta.pause();
    tokio::time::sleep(PAUSE).await;
    berta.resume();
    sending.await.unwrap();
    until_async("all is committed", async || (finished(&stores).await == CHAMBERS).then_some(())).await;

    let mut alarms = 0;
    for number in 0..CHAMBERS {
        assert_each_once(&*store, &fab, number, RUNS).await;
        alarms += assert_as_recomputed(&*store, &fab, number, RUNS).await;
    }
    assert!(alarms > 0, "a fab with faults raises alarms");
    assert_eq!(stores.dead_letters.info().await.unwrap().messages, 0);
    let all = RUNS * CHAMBERS as u64;
    println!(
        "measured: {all} runs, one kill, one pause of {PAUSE:?}: lost 0, double 0, {alarms} alarms as recomputed"
    );
    tokio::task::spawn_blocking(move || drop(keyspace)).await.unwrap();
}

fn log(folder: &Path, name: &str) -> std::path::PathBuf {
    folder.join(format!("{name}.log"))
}
