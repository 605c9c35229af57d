//! Requests to a server and its responses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use phalanx_cluster::backend::{
    AppendCondition, Appended, BucketConfig, Entry, LogConfig, LogInfo, Message, StoreKind,
};
use phalanx_cluster_core::Condition;
use phalanx_cluster_core::types::Revision;

/// The condition of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    Nothing,
    NewId(String),
    EmptySubject,
}

impl From<AppendCondition<'_>> for Expect {
    fn from(condition: AppendCondition<'_>) -> Self {
        match condition {
            AppendCondition::None => Self::Nothing,
            AppendCondition::NewId(id) => Self::NewId(id.to_owned()),
            AppendCondition::EmptySubject => Self::EmptySubject,
        }
    }
}

/// A request. The first field of most is the name of the bucket or log.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    OpenBucket(BucketConfig),
    OpenLog(LogConfig),
    Description(StoreKind, String),
    Describe(StoreKind, String, String),
    Get(Arc<str>, String),
    Write(Arc<str>, String, Bytes, Condition),
    Delete(Arc<str>, String, Revision),
    Keys(Arc<str>),
    Append(Arc<str>, String, Bytes, Expect),
    Read { log: Arc<str>, subject: String, from: u64, limit: usize },
    Next(Arc<str>, String, u64),
    Last(Arc<str>, String),
    Remove(Arc<str>, u64),
    Info(Arc<str>),
    Subjects(Arc<str>),
}

impl Request {
    /// Returns whether the request is a change.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Write(..) | Self::Delete(..) | Self::Append(..) | Self::Remove(..))
    }
}

/// The response to a request.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Done,
    Text(String),
    Entry(Option<Entry>),
    Revision(Revision),
    Keys(BTreeSet<String>),
    Appended(Appended),
    Messages(Vec<Message>),
    Removed(bool),
    Info(LogInfo),
    Subjects(BTreeMap<String, u64>),
}
