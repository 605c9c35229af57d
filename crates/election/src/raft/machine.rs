//! The leases as this node has applied them, for Raft to drive and for everybody else to read.
//!
//! They live in memory. A snapshot is on the disk before the log it replaces goes, so a start finds the last one and what
//! came after it.

use std::io::{self, Cursor};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{AnyError, EntryPayload, RaftSnapshotBuilder, SnapshotMeta, StorageIOError};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::disk::{self, Disk, Found};
use super::{Batch, Entry, LogId, Membership, Replies, StorageError, Types};
use crate::deadlines::Deadlines;
use crate::leases::{Leases, Mark, Reply, Seat};

const SNAPSHOT: &str = "snapshot";

/// What happened to leases, for metrics.
pub(crate) type OnReply = Box<dyn Fn(&crate::leases::Command, &Reply) + Send + Sync>;

/// The applied state. Clones are the same state.
#[derive(Clone)]
pub(crate) struct Machine {
    disk: Disk,
    applied: Arc<Applied>,
}

/// What was applied, for readers.
pub(crate) struct Applied {
    inside: Mutex<Inside>,
    /// The revision of the last change of who leads anything.
    turns: watch::Sender<u64>,
    on_reply: OnReply,
}

#[derive(Default)]
struct Inside {
    state: State,
    deadlines: Deadlines,
    snapshot: Option<Kept>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct State {
    applied: Option<LogId>,
    membership: Membership,
    leases: Leases,
}

#[derive(Clone, Serialize, Deserialize)]
struct Kept {
    meta: SnapshotMeta<u64, openraft::BasicNode>,
    state: State,
}

impl Machine {
    pub(crate) fn open(disk: Disk, found: &Found, on_reply: OnReply) -> Result<Self, disk::Error> {
        let snapshot: Option<Kept> = found.fact(SNAPSHOT)?;
        let mut inside = Inside::default();
        if let Some(kept) = &snapshot {
            inside.state = kept.state.clone();
            inside.deadlines.restart(Instant::now(), &inside.state.leases);
        }
        inside.snapshot = snapshot;
        let turns = watch::Sender::new(inside.state.leases.revision());
        Ok(Self { disk, applied: Arc::new(Applied { inside: Mutex::new(inside), turns, on_reply }) })
    }

    pub(crate) fn applied(&self) -> Arc<Applied> {
        self.applied.clone()
    }

    async fn keep(&self, kept: &Kept) -> Result<(), StorageError> {
        let failed = |error: io::Error| {
            StorageIOError::write_snapshot(Some(kept.meta.signature()), AnyError::error(error))
        };
        Ok(self.disk.remember(SNAPSHOT, kept).await.map_err(failed)?)
    }
}

impl Applied {
    /// What there is to know of an election, and how much of its term is left by this node's count.
    pub(crate) fn seat(&self, election: &str) -> (Option<Seat>, Option<Duration>) {
        let inside = self.inside();
        (inside.state.leases.seat(election), inside.deadlines.left(Instant::now(), election))
    }

    /// The same of all elections, in the order of names.
    pub(crate) fn seats(&self) -> Vec<(String, Seat, Option<Duration>)> {
        let (inside, now) = (self.inside(), Instant::now());
        let seats = inside.state.leases.seats();
        seats.map(|(name, seat)| (name.to_owned(), seat, inside.deadlines.left(now, name))).collect()
    }

    /// How many elections there are, and how many of them have a leader.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let inside = self.inside();
        (inside.state.leases.len(), inside.deadlines.len())
    }

    /// Counts all terms from now on.
    pub(crate) fn restart_terms(&self) {
        let mut inside = self.inside();
        let Inside { state, deadlines, .. } = &mut *inside;
        deadlines.restart(Instant::now(), &state.leases);
    }

    /// The terms that are over.
    pub(crate) fn over(&self) -> Vec<(String, Mark)> {
        self.inside().deadlines.over(Instant::now())
    }

    /// Told whenever somebody begins or ceases to lead.
    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, raft_term: u64, batch: &Batch) -> Replies {
        let mut inside = self.inside();
        let now = Instant::now();
        let Inside { state, deadlines, .. } = &mut *inside;
        let mut turned = false;
        let replies = batch.0.iter().map(|command| {
            let reply = state.leases.apply(raft_term, command);
            let election = command.election();
            if let Some(seat) = state.leases.seat(election) {
                deadlines.note(now, election, &seat);
            }
            turned |= matches!(&reply, Reply::Granted(..) | Reply::Ended(_));
            (self.on_reply)(command, &reply);
            reply
        });
        let replies = Replies(replies.collect());
        let revision = state.leases.revision();
        drop(inside);
        if turned {
            self.turns.send_replace(revision);
        }
        replies
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let inside = self.applied.inside();
        Ok((inside.state.applied, inside.state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Replies>, StorageError>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let replies = entries.into_iter().map(|entry| {
            let replies = match entry.payload {
                EntryPayload::Blank => Replies::default(),
                EntryPayload::Normal(batch) => self.applied.apply(entry.log_id.leader_id.term, &batch),
                EntryPayload::Membership(membership) => {
                    self.applied.inside().state.membership = Membership::new(Some(entry.log_id), membership);
                    Replies::default()
                }
            };
            self.applied.inside().state.applied = Some(entry.log_id);
            replies
        });
        Ok(replies.collect())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, openraft::BasicNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let state: State = serde_json::from_slice(snapshot.get_ref())
            .map_err(|error| StorageIOError::read_snapshot(Some(meta.signature()), AnyError::error(error)))?;
        let kept = Kept { meta: meta.clone(), state };
        self.keep(&kept).await?;
        let revision = {
            let mut inside = self.applied.inside();
            inside.state = kept.state.clone();
            inside.snapshot = Some(kept);
            let Inside { state, deadlines, .. } = &mut *inside;
            deadlines.restart(Instant::now(), &state.leases);
            state.leases.revision()
        };
        self.applied.turns.send_replace(revision);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let kept = self.applied.inside().snapshot.clone();
        kept.map(|kept| as_snapshot(&kept)).transpose()
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let state = self.applied.inside().state.clone();
        let meta = SnapshotMeta {
            last_log_id: state.applied,
            last_membership: state.membership.clone(),
            snapshot_id: state.applied.map_or_else(|| "none".to_owned(), |last| last.to_string()),
        };
        let kept = Kept { meta, state };
        self.keep(&kept).await?;
        let snapshot = as_snapshot(&kept)?;
        self.applied.inside().snapshot = Some(kept);
        Ok(snapshot)
    }
}

fn as_snapshot(kept: &Kept) -> Result<Snapshot<Types>, StorageError> {
    let bytes = serde_json::to_vec(&kept.state).map_err(|error| {
        StorageIOError::read_snapshot(Some(kept.meta.signature()), AnyError::error(error))
    })?;
    Ok(Snapshot { meta: kept.meta.clone(), snapshot: Box::new(Cursor::new(bytes)) })
}
