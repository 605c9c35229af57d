//! A defender alone in its data folder, killed with -9 under load again and again: nothing is lost, nothing is double, and
//! all that is stored is what a recomputation gives.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

mod fleet;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet::{assert_as_recomputed, assert_each_once, options, start, submit};
use phalanx_cluster::backend::{Embedded, Stores};
use phalanx_defender::names::store_config;
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_defender::weights;
use phalanx_fab::Fab;
use phalanx_testkit::process::{Lifetime, Process, bound_to_parent};
use phalanx_testkit::wait::until_async;

const CHAMBERS: usize = 8;
const RUNS: u64 = 60;
const ALL: u64 = CHAMBERS as u64 * RUNS;
/// How many runs have been sent when it is killed. The fab has jumped and drifted by the last ones.
const KILLS: [u64; 5] = [25, 110, 230, 330, 440];
/// How many runs may wait.
const BACKLOG: u64 = 40;
const FOLDER: &str = "PHALANX_TEST_FOLDER";

/// A line for each run that was sent: what was sent and not noted is sent again, and the log has it once.
fn sent(folder: &Path) -> u64 {
    fs::read(folder.join("sent")).unwrap_or_default().len() as u64
}

/// The process that is killed.
#[test]
#[ignore = "a process of the other test"]
fn defender_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder).to_owned();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.join("charts.db")).unwrap());
        let backend = Arc::new(Embedded::open(&folder).unwrap());
        let fab = Fab::new(7, CHAMBERS);
        let chambers = weights::import(&fab.chambers_csv(), jiff::Timestamp::now()).unwrap();
        store.put_metadata(&chambers).await.unwrap();
        let stores = Stores::open(&*backend, &store_config()).await.unwrap();
        let meeting: Arc<dyn phalanx_cluster::backend::Backend> = backend.clone();
        let defender = start(&meeting, &store, options(1)).await;
        let mut note = OpenOptions::new().create(true).append(true).open(folder.join("sent")).unwrap();
        let first = sent(&folder);
        for place in first..ALL {
            submit(&defender, &fab, place as usize % CHAMBERS, place / CHAMBERS as u64).await;
            note.write_all(b".").unwrap();
            // Not much faster than it is worked off: the kills are to fall between all kinds of steps.
            while place - first > defender.handle().stats().processed + BACKLOG {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        until_async("all is committed", async || (committed(&stores).await == CHAMBERS).then_some(())).await;
        defender.shutdown().await;
        backend.close().await;
    });
    fs::write(folder.join("done"), "").unwrap();
}

/// How many chambers have committed their last run.
async fn committed(stores: &Stores) -> usize {
    let last = format!("run-{:06}", RUNS - 1);
    let mut count = 0;
    for key in stores.cursors.keys().await.unwrap() {
        let entry = stores.cursors.get(&key).await.unwrap().unwrap();
        let cursor: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
        count += usize::from(cursor["contextId"] == last.as_str());
    }
    count
}

fn launch(folder: &Path, log: usize) -> Process {
    let mut command = bound_to_parent(&std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "defender_process", "--nocapture"]).env(FOLDER, folder);
    Process::start(command, Lifetime::WithUs, &folder.join(format!("process-{log}.log"))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_defender_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for (round, kill) in KILLS.into_iter().enumerate() {
        let mut process = launch(path, round);
        until_async("it has work", async || (sent(path) >= kill || !process.is_alive()).then_some(())).await;
        assert!(process.is_alive(), "it ended by itself: {}", last_words(path, round));
        process.kill();
    }
    let mut last = launch(path, KILLS.len());
    until_async("it is done", async || (path.join("done").exists() || !last.is_alive()).then_some(())).await;
    assert!(path.join("done").exists(), "{}", last_words(path, KILLS.len()));
    until_async("it has ended", async || (!last.is_alive()).then_some(())).await;

    let store = Sqlite::open(&path.join("charts.db")).unwrap();
    let fab = Fab::new(7, CHAMBERS);
    let mut alarms = 0;
    for number in 0..CHAMBERS {
        assert_each_once(&store, &fab, number, RUNS).await;
        alarms += assert_as_recomputed(&store, &fab, number, RUNS).await;
    }
    assert!(alarms > 0, "a fab with faults raises alarms");
    let backend = Embedded::open(path).unwrap();
    let stores = Stores::open(&backend, &store_config()).await.unwrap();
    assert_eq!(stores.dead_letters.info().await.unwrap().messages, 0);
    assert_eq!(stores.log.info().await.unwrap().messages, ALL, "each was sent once");
    println!("measured: {ALL} runs, {} kills: lost 0, double 0, {alarms} alarms as recomputed", KILLS.len());
}

fn last_words(folder: &Path, log: usize) -> String {
    fs::read_to_string(folder.join(format!("process-{log}.log"))).unwrap_or_default()
}
