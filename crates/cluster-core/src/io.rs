//! Inputs and outputs of the core: events are facts, effects are instructions.

use std::sync::Arc;
use std::time::Duration;

use super::cursor::Position;
use super::types::{
    Entry, FencingToken, Key, LogId, PartitionList, Revision, Sequence, Value, Version, WindowKind,
    WriteTimestamp,
};

/// The purpose of a request. Together with the serial number it identifies the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A heartbeat.
    Heartbeat,
    /// Claiming an id.
    Claim,
    /// Renewing a claim.
    Renew,
    /// Reading the own claim after a write without an answer.
    ReadClaim,
    /// Releasing an id.
    Release,
    /// Deleting a claim that a late write left on an id that this worker does not hold.
    DeleteStrayClaim,
    /// Acquiring or renewing the lease.
    Lease,
    /// Reading the lease after a write without an answer.
    ReadLease,
    /// Resigning from the lease.
    Resign,
    /// Writing the leave record.
    LeaveRecord,
    /// Reading the map as a worker that has an old one or leaves its fence.
    ReadMap,
    /// Reading the map as a new leader, or after a conflict.
    LeaderReadMap,
    /// Writing the map unchanged except for the epoch, as a new leader.
    TouchMap,
    /// Publishing a new map.
    PublishMap,
    /// Reading the state of the last leader.
    ReadState,
    /// Writing the state of the leader.
    WriteState,
    /// Reading the claim of a suspect.
    SuspectClaim,
    /// Reading the heartbeat of a suspect.
    SuspectHeartbeat,
    /// Freeing the id of a crashed worker for a standby.
    FreeId,
    /// Reading many cursors.
    ReadCursors,
    /// Inspecting the log of many partitions.
    InspectLog,
    /// Reading the recovery point of a partition from the result store.
    RecoveryPoint,
    /// Writing a cursor by compare-and-swap.
    Cursor,
    /// Marking a cursor as released.
    ReleaseCursor,
    /// Reading a cursor after a write that was refused or not answered.
    ReadCursor,
    /// Reading messages.
    ReadLog,
    /// Processing a message.
    Process,
    /// Recording a dead letter in the result store.
    RecordDeadLetter,
    /// Publishing a dead letter.
    PublishDeadLetter,
    /// Listing the partitions of the log, to find those that are not in the list.
    Subjects,
    /// Reading the cursors of unlisted partitions.
    UnlistedCursors,
}

/// The id of a request, which its answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    /// Its purpose.
    pub purpose: Purpose,
    /// Its number.
    pub serial: u64,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    None,
    /// The key has no value.
    Absent,
    /// The value has exactly this revision.
    Revision(Revision),
}

/// An instruction to the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Store a value and answer.
    Write {
        /// The id of the request.
        request_id: RequestId,
        /// The key.
        key: Key,
        /// The value.
        value: Value,
        /// The condition.
        condition: Condition,
    },
    /// Remove exactly that revision and answer.
    Delete {
        /// The id of the request.
        request_id: RequestId,
        /// The key.
        key: Key,
        /// The revision.
        revision: Revision,
    },
    /// Read from the stream leader, never from a replica, and answer.
    Read {
        /// The id of the request.
        request_id: RequestId,
        /// The key.
        key: Key,
    },
    /// The assignment changed: stop what is removed, start what is added, then answer with [`Event::Released`].
    Assign {
        /// The map this comes from.
        version: Version,
        /// The added partitions.
        added: Vec<Arc<str>>,
        /// The removed partitions.
        removed: Vec<Arc<str>>,
    },
    /// Without a log: the cursor of an added partition is taken over.
    Grant {
        /// The partition.
        partition: Arc<str>,
        /// The token, which grows with every owner: a lower one is outdated.
        fencing_token: FencingToken,
    },
    /// Read these cursors from the stream leader, and answer with [`Event::Cursors`] in this order.
    ReadCursors {
        /// The id of the request.
        request_id: RequestId,
        /// The partitions.
        partitions: Vec<Arc<str>>,
    },
    /// Ask the stream leader about the log and the last message of each partition; answer with [`Event::LogInspected`].
    InspectLog {
        /// The id of the request.
        request_id: RequestId,
        /// The partitions.
        partitions: Vec<Arc<str>>,
    },
    /// Ask the result store for the newest handler state of a partition; answer with [`Event::RecoveryPointRead`].
    ReadRecoveryPoint {
        /// The id of the request.
        request_id: RequestId,
        /// The partition.
        partition: Arc<str>,
    },
    /// Read two messages of a partition, and answer with [`Event::LogRead`].
    ReadLog {
        /// The id of the request.
        request_id: RequestId,
        /// The partition.
        partition: Arc<str>,
        /// The first sequence to read.
        from: Sequence,
        /// Whether to read from the stream leader, together with the state of the log; otherwise any replica may answer.
        from_leader: bool,
    },
    /// Process a message and store its results, as long as the fence is open; answer with [`Event::Processed`].
    Process {
        /// The id of the request.
        request_id: RequestId,
        /// The partition.
        partition: Arc<str>,
        /// The message and its position.
        work: Box<ProcessRequest>,
    },
    /// Cancel what runs for a partition: another worker has taken it over.
    Cancel {
        /// The partition.
        partition: Arc<str>,
    },
    /// Record the dead letter, with the unchanged handler state, at its position; answer with [`Event::DeadLetterStep`].
    RecordDeadLetter {
        /// The id of the request.
        request_id: RequestId,
        /// The partition.
        partition: Arc<str>,
        /// The message and its position.
        work: Box<ProcessRequest>,
        /// The reason.
        reason: Arc<str>,
    },
    /// Publish the dead letter under its position, unless it exists; answer with [`Event::DeadLetterStep`]. A refusal means
    /// that it exists.
    PublishDeadLetter {
        /// The id of the request.
        request_id: RequestId,
        /// The partition.
        partition: Arc<str>,
        /// The message and its position.
        work: Box<ProcessRequest>,
        /// The reason.
        reason: Arc<str>,
    },
    /// List the partitions that the log holds messages of, with the last sequence of each; answer with
    /// [`Event::Subjects`].
    ListSubjects {
        /// The id of the request.
        request_id: RequestId,
    },
    /// Count an event.
    Notice(Notice),
    /// Start nothing and cancel what runs: the fence is closed.
    Fence,
    /// Stop starting work, drain, then answer with [`Event::Drained`].
    Drain,
    /// End the process: everything is done.
    Exit,
    /// Warn the operator.
    Warn(Warning),
}

/// A message of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its sequence in the log.
    pub sequence: Sequence,
    /// Its id, by the handler.
    pub message_id: Arc<str>,
    /// The broker's time when it was stored, in microseconds.
    pub stored_at: u64,
    /// Its payload.
    pub payload: Arc<[u8]>,
}

/// A message to process, and the position of its results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRequest {
    /// The message.
    pub message: Message,
    /// The position of its rows.
    pub position: Position,
    /// The position of the handler state to continue from; none if nothing was ever committed.
    pub committed: Option<Position>,
    /// The log of the message.
    pub log_id: Option<LogId>,
    /// The fencing token of the attempt: results of a lower token never replace those of a higher one.
    pub fencing_token: FencingToken,
    /// The write timestamp of its results.
    pub write_timestamp: WriteTimestamp,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Whether cached handler state of this partition is invalid and must be read from the store.
    pub ignore_cache: bool,
}

/// The outcome of processing a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessOutcome {
    /// Its results are stored.
    Done,
    /// It failed, or timed out; the number of retries is limited.
    Failed(Arc<str>),
    /// It can never succeed.
    Poison(Arc<str>),
    /// The result store is unavailable; the message is not at fault.
    Unavailable,
}

/// The state of a log, by the stream leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogInfo {
    /// The identity of the log.
    pub log_id: LogId,
    /// The first sequence it holds; one above the last if it is empty.
    pub first: Sequence,
    /// The last sequence it gave.
    pub last: Sequence,
}

/// The log, and the last message of each requested partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogInspection {
    /// The log.
    pub info: LogInfo,
    /// The last message of each partition.
    pub last_messages: Vec<Option<LastMessage>>,
}

/// The last message of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastMessage {
    /// Its sequence.
    pub sequence: Sequence,
    /// Its id, because a log that lost its newest messages gives their sequences to others.
    pub message_id: Arc<str>,
}

/// The partitions that the log holds messages of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectList {
    /// The identity of the log.
    pub log_id: LogId,
    /// Each partition with its last sequence.
    pub lasts: Vec<(Arc<str>, Sequence)>,
}

/// Up to two messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The state of the log, by the stream leader; none if a replica answered.
    pub info: Option<LogInfo>,
    /// The messages, in order.
    pub messages: Vec<Message>,
}

/// The progress of a partition, by the newest handler state in the result store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryPoint {
    /// The position of the newest handler state. Whether it was committed is not known.
    pub newest: Position,
    /// The position that was committed before it.
    pub predecessor: Option<Position>,
    /// The id of the message at the predecessor, if it is known.
    pub message_id: Option<Arc<str>>,
    /// The log of the predecessor, if it is known.
    pub log_id: Option<LogId>,
    /// The highest write timestamp, plus its fencing token, of what is stored at the newest position.
    pub write_timestamp: WriteTimestamp,
}

/// An event that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A message is committed, or its dead letter is published.
    Committed {
        /// The partition.
        partition: Arc<str>,
        /// The message.
        position: Position,
        /// Whether it is a dead letter.
        dead: bool,
    },
    /// Messages between these two, both excluded, expired unread.
    Expired {
        /// The partition.
        partition: Arc<str>,
        /// The sequence up to which everything was read.
        after: Sequence,
        /// The first sequence that the log still holds.
        before: Sequence,
    },
    /// The log was replaced: it is read from its beginning.
    LogReplaced {
        /// The partition.
        partition: Arc<str>,
        /// The new generation of its positions.
        generation: u64,
    },
    /// An unlisted partition has messages and is adopted.
    Adopted {
        /// The partition.
        partition: Arc<str>,
    },
    /// This leader has taken over a cluster of which almost no worker is heard.
    RestartDetected,
    /// This leader has made a map, which is being published.
    Planned(PlanSummary),
}

/// The figures of a new map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSummary {
    /// The window before it, and its length; none without a window.
    pub window: Option<(WindowKind, Duration)>,
    /// Whether a crash caused it.
    pub emergency: bool,
    /// The number of partitions without a living owner.
    pub orphans: usize,
    /// The number of balancing rounds.
    pub rounds: u32,
}

/// A warning for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// All worker ids are in use; the worker retries.
    PoolExhausted {
        /// The number of ids.
        ids: u32,
    },
    /// Another process holds the id of this worker.
    IdentityLost {
        /// The id.
        id: u32,
    },
    /// A standby has waited for more than two minutes: there are more replicas than the fleet size says.
    IdleStandby,
}

/// A fact for the core.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// Connected: the first values of all watched keys have been delivered.
    Synced,
    /// A watched value was stored or removed.
    Watched {
        /// The key.
        key: Key,
        /// The value; none if it was removed.
        entry: Option<Entry>,
        /// Whether it was stored before the watch began: then it does not prove that its writer lives.
        retained: bool,
    },
    /// A write or a removal was answered.
    Written {
        /// The id of the request.
        request_id: RequestId,
        /// The outcome.
        result: Result<Written, WriteError>,
    },
    /// A read was answered.
    Fetched {
        /// The id of the request.
        request_id: RequestId,
        /// The value, if the key has one; an error does not prove that it has none.
        result: Result<Option<Entry>, ReadError>,
    },
    /// Many cursors were read.
    Cursors {
        /// The id of the request.
        request_id: RequestId,
        /// The cursors, in the order of the request.
        result: Result<Vec<Option<Entry>>, ReadError>,
    },
    /// The log was inspected.
    LogInspected {
        /// The id of the request.
        request_id: RequestId,
        /// The log and the last messages.
        result: Result<LogInspection, ReadError>,
    },
    /// The recovery point of a partition was read.
    RecoveryPointRead {
        /// The id of the request.
        request_id: RequestId,
        /// The recovery point, if the store has one.
        result: Result<Option<RecoveryPoint>, ReadError>,
    },
    /// Messages were read.
    LogRead {
        /// The id of the request.
        request_id: RequestId,
        /// The messages.
        result: Result<LogPage, ReadError>,
    },
    /// A message was processed, or not.
    Processed {
        /// The id of the request.
        request_id: RequestId,
        /// The outcome.
        outcome: ProcessOutcome,
    },
    /// A step of dead-lettering was answered.
    DeadLetterStep {
        /// The id of the request.
        request_id: RequestId,
        /// Whether it is done.
        happened: bool,
    },
    /// The partitions that the log holds messages of.
    Subjects {
        /// The id of the request.
        request_id: RequestId,
        /// The partitions.
        result: Result<SubjectList, ReadError>,
    },
    /// A wake-up: a message of a partition may be there to read.
    WakeUp(Arc<str>),
    /// The partition list, with weights.
    Partitions(Arc<PartitionList>),
    /// The partitions that a map removed are released.
    Released(Version),
    /// All running work has ended or was canceled.
    Drained,
    /// The worker is told to leave.
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

/// The error of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The condition did not hold: it did not happen.
    Conflict,
    /// It did not happen, and may be repeated.
    Failed,
    /// No answer: it may have happened, or may still happen.
    Unknown,
}

/// The error of a read without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadError;
