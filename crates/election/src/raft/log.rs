//! The log of commands and this node's vote: in memory for reading, on the disk to be remembered.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LogState, RaftLogReader, StorageIOError};

use super::disk::{self, Disk, FACTS, Found, LOG};
use super::{Entry, LogId, StorageError, Types, Vote};

const VOTE: &str = "vote";
const PURGED: &str = "purged";

/// The log of one node. Clones are the same log.
#[derive(Clone)]
pub(crate) struct Log {
    disk: Disk,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<u64, Entry>,
    purged: Option<LogId>,
    vote: Option<Vote>,
}

impl Log {
    pub(crate) fn open(disk: Disk, found: &Found) -> Result<Self, disk::Error> {
        let state = State {
            entries: found.log()?.into_iter().collect(),
            purged: found.fact(PURGED)?,
            vote: found.fact(VOTE)?,
        };
        Ok(Self { disk, state: Arc::new(Mutex::new(state)) })
    }

    /// The index of the last entry there is or was.
    pub(crate) fn last_index(&self) -> Option<u64> {
        let state = self.state();
        state.entries.keys().next_back().copied().or(state.purged.map(|purged| purged.index))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unwritten(error: &io::Error) -> StorageError {
    StorageIOError::write_logs(AnyError::error(error)).into()
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        Ok(self.state().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let state = self.state();
        let last = state.entries.values().next_back().map(|entry| entry.log_id);
        Ok(LogState { last_purged_log_id: state.purged, last_log_id: last.or(state.purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        self.disk
            .remember(VOTE, vote)
            .await
            .map_err(|error| StorageIOError::write_vote(AnyError::error(error)))?;
        self.state().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.state().vote)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let texts: Result<Vec<(u64, Vec<u8>)>, _> = entries
            .iter()
            .map(|entry| serde_json::to_vec(entry).map(|text| (entry.log_id.index, text)))
            .collect();
        let texts = texts.map_err(|error| unwritten(&error.into()))?;
        self.state().entries.extend(entries.into_iter().map(|entry| (entry.log_id.index, entry)));
        self.disk.write(
            move |writing| {
                let mut log = writing.open_table(LOG)?;
                for (index, text) in &texts {
                    log.insert(index, text.as_slice())?;
                }
                Ok(())
            },
            |written| callback.log_io_completed(written),
        );
        Ok(())
    }

    async fn truncate(&mut self, since: LogId) -> Result<(), StorageError> {
        self.state().entries.split_off(&since.index);
        let written = self.disk.written(move |writing| {
            writing.open_table(LOG)?.retain_in(since.index.., |_, _| false)?;
            Ok(())
        });
        written.await.map_err(|error| unwritten(&error))
    }

    async fn purge(&mut self, up_to: LogId) -> Result<(), StorageError> {
        {
            let mut state = self.state();
            state.entries = state.entries.split_off(&(up_to.index + 1));
            state.purged = Some(up_to);
        }
        let fact = serde_json::to_vec(&up_to).map_err(|error| unwritten(&error.into()))?;
        let written = self.disk.written(move |writing| {
            writing.open_table(LOG)?.retain_in(..=up_to.index, |_, _| false)?;
            writing.open_table(FACTS)?.insert(PURGED, fact.as_slice())?;
            Ok(())
        });
        written.await.map_err(|error| unwritten(&error))
    }
}
