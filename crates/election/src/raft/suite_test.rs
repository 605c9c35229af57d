//! Raft's own list of what a store must do, run against ours on a real disk.

use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;

use super::Types;
use super::disk::Disk;
use super::log::Log;
use super::machine::Machine;
use crate::leases::{Command, Nonce};

struct OnDisk;

impl StoreBuilder<Types, Log, Machine, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, Log, Machine), StorageError<u64>> {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, machine) = open(&folder);
        Ok((folder, log, machine))
    }
}

fn open(folder: &TempDir) -> (Log, Machine) {
    let (disk, found) = Disk::open(folder.path()).expect("a disk");
    let log = Log::open(disk.clone(), &found).expect("a log");
    let machine = Machine::open(disk, &found, Box::new(|_, _| {})).expect("a machine");
    (log, machine)
}

#[test]
fn our_store_does_what_raft_asks_of_one() {
    Suite::test_all(OnDisk).expect("every fact holds");
}

#[tokio::test]
async fn log_vote_and_snapshot_are_there_when_the_folder_is_opened_again() {
    use openraft::entry::FromAppData as _;
    use openraft::storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _};
    use openraft::{CommittedLeaderId, LogId, RaftLogReader as _, RaftSnapshotBuilder as _, Vote};

    let folder = tempfile::tempdir().expect("a folder");
    let entry = |index: u64| {
        let command = Command::Campaign {
            election: "e".to_owned(),
            candidate: "a".to_owned(),
            ttl_ms: 1000,
            nonce: Nonce(1, index),
        };
        let mut entry = super::Entry::from_app_data(super::Batch(vec![command]));
        entry.log_id = LogId::new(CommittedLeaderId::new(3, 1), index);
        entry
    };
    {
        let (mut log, mut machine) = open(&folder);
        log.save_vote(&Vote::new_committed(3, 1)).await.expect("a vote");
        log.blocking_append((1..=5).map(entry)).await.expect("entries");
        machine.apply((1..=3).map(entry)).await.expect("applied");
        machine.build_snapshot().await.expect("a snapshot");
        log.purge(LogId::new(CommittedLeaderId::new(3, 1), 2)).await.expect("purged");
    }
    // The file is free when its thread has ended.
    let (mut log, mut machine) = loop {
        if let Ok((disk, found)) = Disk::open(folder.path()) {
            let log = Log::open(disk.clone(), &found).expect("a log");
            break (log, Machine::open(disk, &found, Box::new(|_, _| {})).expect("a machine"));
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(log.read_vote().await.expect("a vote"), Some(Vote::new_committed(3, 1)));
    let indexes: Vec<u64> = log
        .try_get_log_entries(0..100)
        .await
        .expect("entries")
        .iter()
        .map(|entry| entry.log_id.index)
        .collect();
    assert_eq!(indexes, [3, 4, 5]);
    assert_eq!(machine.applied_state().await.expect("a state").0.map(|last| last.index), Some(3));
    assert_eq!(machine.applied().seat("e").0.expect("it is there").renewals, 2);
}
