//! What goes in and what comes out of the core. Inputs are facts, outputs are imperatives.

use std::sync::Arc;

use super::types::{Entry, Key, Partitions, Revision, Value, Version};

/// What a request was for. Answers are told apart by it and by the serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A sign of life.
    Heartbeat,
    /// Taking an id.
    Claim,
    /// Keeping an id.
    Renew,
    /// Looking at one's own claim after an answer that did not come.
    ReadClaim,
    /// Giving an id back.
    Release,
    /// Removing a claim that a late write left on an id one does not hold.
    Tidy,
    /// Taking or keeping the lease.
    Lease,
    /// Looking at the lease after an answer that did not come.
    ReadLease,
    /// Giving the lease back.
    Resign,
    /// The farewell.
    Farewell,
    /// Reading the map as a worker that is behind or leaves its fence.
    ReadMap,
    /// Reading the map as a new leader, or after a conflict.
    LeaderReadMap,
    /// A new leader's first write: the map, unchanged but for the epoch.
    TouchMap,
    /// Publishing a new map.
    PublishMap,
    /// Reading what the last leader was doing.
    ReadState,
    /// Telling everybody what the leader is doing.
    WriteState,
    /// Looking at a suspect's claim.
    SuspectClaim,
    /// Looking at a suspect's heartbeat.
    SuspectHeartbeat,
    /// Freeing the id of the dead for a standby.
    FreeId,
}

/// Names a request, so that its answer finds its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// What it was for.
    pub purpose: Purpose,
    /// Which one it was.
    pub serial: u64,
}

/// Under which condition a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Whatever is there.
    None,
    /// Nothing is there.
    Absent,
    /// Exactly this is there.
    Revision(Revision),
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Store a value and answer.
    Write {
        /// Whom to answer.
        ticket: Ticket,
        /// Where.
        key: Key,
        /// What.
        value: Value,
        /// When.
        condition: Condition,
    },
    /// Remove exactly that revision and answer.
    Delete {
        /// Whom to answer.
        ticket: Ticket,
        /// Where.
        key: Key,
        /// Which revision.
        revision: Revision,
    },
    /// Read from the stream leader, never from a replica, and answer.
    Read {
        /// Whom to answer.
        ticket: Ticket,
        /// Where.
        key: Key,
    },
    /// The assignment changed: stop what is removed, start what is added, then say [`Event::LetGo`].
    Assign {
        /// The map this comes from.
        version: Version,
        /// Partitions gained.
        added: Vec<Arc<str>>,
        /// Partitions lost.
        removed: Vec<Arc<str>>,
    },
    /// Start nothing and drop what runs: the fence is closed.
    Fence,
    /// Work may go on.
    Unfence,
    /// Stop starting work, drain, then say [`Event::Drained`].
    Drain,
    /// Everything is done; the process may end.
    Exit,
    /// Something a person should know.
    Warn(Warning),
}

/// Something a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Every id of the pool is taken; it is tried again.
    PoolExhausted {
        /// How many ids there are.
        ids: u32,
    },
    /// Another process holds our id.
    IdentityLost {
        /// The id.
        id: u32,
    },
    /// A standby has waited for more than two minutes: there are more replicas than the fleet size says.
    IdleStandby,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Time has passed; nothing else.
    Tick,
    /// Connected: the first values of all watched keys have been delivered.
    Synced,
    /// A watched value is there, or is gone.
    Watched {
        /// Where.
        key: Key,
        /// What; none if it was removed.
        entry: Option<Entry>,
        /// Whether it is an old value that was there when the watch began: no sign of life.
        retained: bool,
    },
    /// A write or a removal was answered.
    Written {
        /// The request.
        ticket: Ticket,
        /// How it went.
        result: Result<Written, WriteError>,
    },
    /// A read was answered.
    Fetched {
        /// The request.
        ticket: Ticket,
        /// What is there; an error is never evidence of absence.
        result: Result<Option<Entry>, ReadError>,
    },
    /// The partitions to keep, with their weights.
    Partitions(Arc<Partitions>),
    /// What a map took away has been let go of.
    LetGo(Version),
    /// Whatever ran has ended or was given up.
    Drained,
    /// Leave.
    Shutdown,
}

/// A write that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The new revision.
    pub revision: Revision,
    /// The broker's time, in microseconds.
    pub stored_at: u64,
}

/// A write that did not happen, or may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The condition did not hold: it did not happen.
    Conflict,
    /// It did not happen, and may be tried again.
    Failed,
    /// No answer: it may have happened, or may still happen.
    Unknown,
}

/// A read that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadError;

/// Hands out tickets.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    last: u64,
}

impl Tickets {
    pub(super) fn next(&mut self, purpose: Purpose) -> Ticket {
        self.last += 1;
        Ticket { purpose, serial: self.last }
    }
}
