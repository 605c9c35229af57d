//! Replication: what Raft is told about our commands, where it keeps them, and how its nodes speak to each other.

#![allow(clippy::result_large_err, reason = "Raft's own errors are large")]

pub(crate) mod disk;
pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod network;

use std::io::Cursor;

use serde::{Deserialize, Serialize};

use crate::leases::{Command, Reply};

/// Commands that are ordered together: whatever waits when a write begins shares it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Batch(pub(crate) Vec<Command>);

/// A reply for each command of a batch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Replies(pub(crate) Vec<Reply>);

openraft::declare_raft_types!(
    /// Our types, for Raft.
    pub(crate) Types:
        D = Batch,
        R = Replies,
        NodeId = u64,
        Node = openraft::BasicNode,
);

pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type Metrics = openraft::RaftMetrics<u64, openraft::BasicNode>;
type StorageError = openraft::StorageError<u64>;
type LogId = openraft::LogId<u64>;
type Vote = openraft::Vote<u64>;
type Entry = openraft::Entry<Types>;
type Membership = openraft::StoredMembership<u64, openraft::BasicNode>;

#[cfg(test)]
mod suite_test;
