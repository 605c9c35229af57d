//! A process that is killed under load loses nothing that it was told is stored.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster::backend::{AppendCondition, Backend, BucketConfig, Embedded, Kv, Log, LogConfig};
use phalanx_testkit::process::{Lifetime, Process};
use tempfile::tempdir;
use tokio::time::Instant;

/// Set in the run that is to be killed: the folder to write to.
const VICTIM: &str = "PHALANX_KILL_TEST_VICTIM";
const WRITERS: usize = 8;
/// Each life of the child writes at least so much before it is killed.
const ACKNOWLEDGED_MIN: usize = 2_000;

fn bucket() -> BucketConfig {
    BucketConfig::new("kill")
}

fn log() -> LogConfig {
    LogConfig::new("kill", ["kill.*"])
}

/// What the killed process does.
async fn write_until_killed(folder: &Path) {
    let backend = Embedded::open(folder).unwrap();
    let (bucket, log) = (backend.bucket(&bucket()).await.unwrap(), backend.log(&log()).await.unwrap());
    let writers = (0..WRITERS).map(|writer| {
        let (bucket, log) = (bucket.clone(), log.clone());
        let ledger = folder.join(format!("acknowledged-{writer}"));
        tokio::spawn(write_for_ever(writer, bucket, log, ledger))
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// Counts up under its own key by compare-and-swap and appends each number; notes what was acknowledged.
async fn write_for_ever(writer: usize, bucket: Arc<dyn Kv>, log: Arc<dyn Log>, ledger: std::path::PathBuf) {
    use std::io::Write as _;

    let mut ledger = fs::File::options().create(true).append(true).open(ledger).unwrap();
    let key = format!("writer-{writer}");
    let entry = bucket.get(&key).await.unwrap();
    let mut count = entry.as_ref().map_or(0, |entry| number(&entry.value));
    let mut revision = entry.map(|entry| entry.revision);
    loop {
        count += 1;
        let value = bytes::Bytes::from(count.to_string());
        revision = Some(match revision {
            None => bucket.create(&key, value).await.unwrap(),
            Some(revision) => bucket.update(&key, value, revision).await.unwrap(),
        });
        let id = format!("{writer}:{count}");
        let payload = bytes::Bytes::from(count.to_string());
        log.append(&format!("kill.{writer}"), payload, AppendCondition::NewId(&id)).await.unwrap();
        // One unbuffered write: it is with the kernel, which survives us.
        ledger.write_all(format!("{count}\n").as_bytes()).unwrap();
    }
}

fn number(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).unwrap().parse().unwrap()
}

/// The numbers that a writer was told are stored. The last line may be cut short by the kill.
fn acknowledged(folder: &Path, writer: usize) -> Vec<u64> {
    let text = fs::read_to_string(folder.join(format!("acknowledged-{writer}"))).unwrap_or_default();
    text.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
        .map(|line| number(line.as_bytes()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_under_load_and_restart_loses_nothing_that_was_acknowledged() {
    if let Some(folder) = std::env::var_os(VICTIM) {
        return write_until_killed(Path::new(&folder)).await;
    }
    let folder = tempdir().unwrap();
    let mut expected = ACKNOWLEDGED_MIN;
    for life in 1..=3 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "--nocapture",
                "kill::kill_9_under_load_and_restart_loses_nothing_that_was_acknowledged",
            ])
            .env(VICTIM, folder.path());
        let output = folder.path().join("child.log");
        let mut child = Process::start(command, Lifetime::WithUs, &output).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let total = || (0..WRITERS).map(|writer| acknowledged(folder.path(), writer).len()).sum::<usize>();
        while total() < expected {
            let said = || fs::read_to_string(&output).unwrap_or_default();
            assert!(child.is_alive(), "the child ended by itself: {}", said());
            assert!(
                Instant::now() < deadline,
                "life {life}: only {} of {expected} writes: {}",
                total(),
                said()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        child.kill();
        expected = total() + ACKNOWLEDGED_MIN;

        let backend = Embedded::open(folder.path()).unwrap();
        let (bucket, log) = (backend.bucket(&bucket()).await.unwrap(), backend.log(&log()).await.unwrap());
        for writer in 0..WRITERS {
            let acknowledged = acknowledged(folder.path(), writer);
            let Some(&last) = acknowledged.last() else { continue };
            let stored = bucket.get(&format!("writer-{writer}")).await.unwrap().expect("the key is there");
            let stored = number(&stored.value);
            assert!(stored >= last, "writer {writer}: {stored} stored, {last} acknowledged");
            let messages = log.read(&format!("kill.{writer}"), 1, usize::MAX).await.unwrap();
            let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
            for message in &messages {
                *counts.entry(number(&message.payload)).or_default() += 1;
            }
            for number in &acknowledged {
                assert_eq!(counts.get(number), Some(&1), "writer {writer}: message {number}");
            }
        }
        backend.close().await;
    }
    println!("measured: {} acknowledged writes over 3 kills, none lost", (expected - ACKNOWLEDGED_MIN) * 2);
}
