//! What goes in and what comes out of the core. Inputs are facts, outputs are imperatives.

use std::sync::Arc;
use std::time::Duration;

use super::cursor::Position;
use super::types::{
    Entry, FencingToken, Key, LogId, PartitionList, Revision, Sequence, Value, Version, WindowKind,
    WriteTimestamp,
};

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
    DeleteStrayClaim,
    /// Taking or keeping the lease.
    Lease,
    /// Looking at the lease after an answer that did not come.
    ReadLease,
    /// Giving the lease back.
    Resign,
    /// The farewell.
    LeaveRecord,
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
    /// Looking at many cursors.
    ReadCursors,
    /// Looking at the log of many partitions.
    InspectLog,
    /// Asking the store how far a partition came.
    RecoveryPoint,
    /// Swapping a cursor.
    Cursor,
    /// Marking a cursor as released.
    ReleaseCursor,
    /// Looking at a cursor after a swap that was refused or not answered.
    ReadCursor,
    /// Reading messages.
    ReadLog,
    /// Processing a message.
    Process,
    /// Writing down that a message is dead.
    RecordDeadLetter,
    /// Publishing a dead letter.
    PublishDeadLetter,
    /// Looking for partitions that the log knows and the list does not.
    Subjects,
    /// Looking at the cursors of partitions that are not in the list.
    UnlistedCursors,
}

/// Names a request, so that its answer finds its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
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
        request_id: RequestId,
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
        request_id: RequestId,
        /// Where.
        key: Key,
        /// Which revision.
        revision: Revision,
    },
    /// Read from the stream leader, never from a replica, and answer.
    Read {
        /// Whom to answer.
        request_id: RequestId,
        /// Where.
        key: Key,
    },
    /// The assignment changed: stop what is removed, start what is added, then say [`Event::Released`].
    Assign {
        /// The map this comes from.
        version: Version,
        /// Partitions gained.
        added: Vec<Arc<str>>,
        /// Partitions lost.
        removed: Vec<Arc<str>>,
    },
    /// Without a log: the cursor of a gained partition is taken; the take is a fencing token.
    Grant {
        /// The partition.
        partition: Arc<str>,
        /// The token, which grows with every owner: a lower one is outdated.
        fencing_token: FencingToken,
    },
    /// Read these cursors from the stream leader, and answer with [`Event::Cursors`] in this order.
    ReadCursors {
        /// Whom to answer.
        request_id: RequestId,
        /// Whose cursors.
        partitions: Vec<Arc<str>>,
    },
    /// Ask the stream leader about the log and the last message of each partition; answer with [`Event::LogInspected`].
    InspectLog {
        /// Whom to answer.
        request_id: RequestId,
        /// Which partitions.
        partitions: Vec<Arc<str>>,
    },
    /// Ask the store for the newest chart state of a partition; answer with [`Event::RecoveryPointRead`].
    ReadRecoveryPoint {
        /// Whom to answer.
        request_id: RequestId,
        /// Which partition.
        partition: Arc<str>,
    },
    /// Read two messages of a partition, and answer with [`Event::LogRead`].
    ReadLog {
        /// Whom to answer.
        request_id: RequestId,
        /// Which partition.
        partition: Arc<str>,
        /// The first sequence to read.
        from: Sequence,
        /// From the stream leader, with what it says about the log; otherwise from any replica.
        from_leader: bool,
    },
    /// Process a message and store its results, as long as the fence is open; answer with [`Event::Processed`].
    Process {
        /// Whom to answer.
        request_id: RequestId,
        /// Which partition.
        partition: Arc<str>,
        /// What to do.
        work: Box<ProcessRequest>,
    },
    /// Drop what runs for a partition: somebody else has taken it.
    Cancel {
        /// Which partition.
        partition: Arc<str>,
    },
    /// Write that the message is dead, and the unchanged chart state, at its position; answer with [`Event::DeadLetterStep`].
    RecordDeadLetter {
        /// Whom to answer.
        request_id: RequestId,
        /// Which partition.
        partition: Arc<str>,
        /// The message and where it stands.
        work: Box<ProcessRequest>,
        /// Why it is dead.
        reason: Arc<str>,
    },
    /// Publish the dead letter under its position, where none may be yet; answer with [`Event::DeadLetterStep`]. A refusal means
    /// that it is there.
    PublishDeadLetter {
        /// Whom to answer.
        request_id: RequestId,
        /// Which partition.
        partition: Arc<str>,
        /// The message and where it stands.
        work: Box<ProcessRequest>,
        /// Why it is dead.
        reason: Arc<str>,
    },
    /// List the partitions that the log holds messages of, with the last sequence of each; answer with
    /// [`Event::Subjects`].
    ListSubjects {
        /// Whom to answer.
        request_id: RequestId,
    },
    /// Something happened that is counted.
    Notice(Notice),
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

/// A message of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its sequence in the log.
    pub sequence: Sequence,
    /// Its id: for a notification, the context.
    pub message_id: Arc<str>,
    /// The broker's time when it was stored, in microseconds.
    pub stored_at: u64,
    /// What it says.
    pub payload: Arc<[u8]>,
}

/// A message to process, and where its results belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRequest {
    /// The message.
    pub message: Message,
    /// The position of its rows.
    pub position: Position,
    /// Where the chart state to go on from stands; none if nothing was ever committed.
    pub committed: Option<Position>,
    /// The log of the message.
    pub log_id: Option<LogId>,
    /// The fencing token of the attempt: results of a lower token never replace those of a higher one.
    pub fencing_token: FencingToken,
    /// The write timestamp of its results.
    pub write_timestamp: WriteTimestamp,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What is remembered of this partition does not count: read it from the store.
    pub ignore_cache: bool,
}

/// How the processing of a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessOutcome {
    /// Its results are stored.
    Done,
    /// It failed, or took too long; it is tried again, but not for ever.
    Failed(Arc<str>),
    /// It can never succeed.
    Poison(Arc<str>),
    /// The store does not answer: no fault of the message.
    Unavailable,
}

/// What the stream leader says about a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogInfo {
    /// The identity of the log.
    pub log_id: LogId,
    /// The first sequence it holds; one above the last if it is empty.
    pub first: Sequence,
    /// The last sequence it gave.
    pub last: Sequence,
}

/// The log, and the last message of each partition that was asked for.
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
    /// Its id: a log that lost its tail gives the same sequence to another message.
    pub message_id: Arc<str>,
}

/// Every partition that the log holds messages of.
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
    /// What the stream leader says about the log; none if a replica answered.
    pub info: Option<LogInfo>,
    /// The messages, in order.
    pub messages: Vec<Message>,
}

/// How far a partition came, by the newest chart state in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryPoint {
    /// Where the newest chart state stands. Whether it was committed is not known.
    pub newest: Position,
    /// What was committed before it.
    pub predecessor: Option<Position>,
    /// The id of the message at the predecessor, if it is known.
    pub message_id: Option<Arc<str>>,
    /// The log of the predecessor, if it is known.
    pub log_id: Option<LogId>,
    /// The highest write timestamp, plus its fencing token, of what is stored at the newest position.
    pub write_timestamp: WriteTimestamp,
}

/// Something that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A message is committed, or its dead letter is published.
    Committed {
        /// The partition.
        partition: Arc<str>,
        /// The message.
        position: Position,
        /// Whether it is dead.
        dead: bool,
    },
    /// Messages between these two, both excluded, were gone before they were read.
    Expired {
        /// The partition.
        partition: Arc<str>,
        /// The sequence up to which everything was read.
        after: Sequence,
        /// The first sequence that the log still holds.
        before: Sequence,
    },
    /// The log is not the one that was read before: it is read from its beginning.
    LogReplaced {
        /// The partition.
        partition: Arc<str>,
        /// The new generation of its positions.
        generation: u64,
    },
    /// A partition that is not in the list has messages: it is adopted.
    Adopted {
        /// The partition.
        partition: Arc<str>,
    },
    /// This leader has taken over a cluster of which almost nobody is there.
    RestartDetected,
    /// This leader has made a map, which is being published.
    Planned(PlanSummary),
}

/// How a map came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSummary {
    /// What it was waited for, and how long; none where there was no window.
    pub window: Option<(WindowKind, Duration)>,
    /// Whether it is for a crash.
    pub emergency: bool,
    /// How many partitions had no living owner.
    pub orphans: usize,
    /// In how many rounds the fleet was balanced.
    pub rounds: u32,
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
        request_id: RequestId,
        /// How it went.
        result: Result<Written, WriteError>,
    },
    /// A read was answered.
    Fetched {
        /// The request.
        request_id: RequestId,
        /// What is there; an error is never evidence of absence.
        result: Result<Option<Entry>, ReadError>,
    },
    /// Many cursors were read.
    Cursors {
        /// The request.
        request_id: RequestId,
        /// The cursors, in the order of the request.
        result: Result<Vec<Option<Entry>>, ReadError>,
    },
    /// The log was looked at.
    LogInspected {
        /// The request.
        request_id: RequestId,
        /// What was found.
        result: Result<LogInspection, ReadError>,
    },
    /// The store was asked how far a partition came.
    RecoveryPointRead {
        /// The request.
        request_id: RequestId,
        /// What it holds.
        result: Result<Option<RecoveryPoint>, ReadError>,
    },
    /// Messages were read.
    LogRead {
        /// The request.
        request_id: RequestId,
        /// The messages.
        result: Result<LogPage, ReadError>,
    },
    /// A message was processed, or not.
    Processed {
        /// The request.
        request_id: RequestId,
        /// How it ended.
        outcome: ProcessOutcome,
    },
    /// Something that only succeeds or is tried again was answered.
    DeadLetterStep {
        /// The request.
        request_id: RequestId,
        /// Whether it is done.
        happened: bool,
    },
    /// The partitions that the log holds messages of.
    Subjects {
        /// The request.
        request_id: RequestId,
        /// What the log holds.
        result: Result<SubjectList, ReadError>,
    },
    /// A message was published for a partition: there may be something to read.
    WakeUp(Arc<str>),
    /// The partitions to keep, with their weights.
    Partitions(Arc<PartitionList>),
    /// What a map took away has been let go of.
    Released(Version),
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

/// Hands out request_ids.
#[derive(Debug, Default)]
pub(super) struct RequestIds {
    last: u64,
}

impl RequestIds {
    /// The last one that was given: what is asked from now on has a higher one.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn next(&mut self, purpose: Purpose) -> RequestId {
        self.last += 1;
        RequestId { purpose, serial: self.last }
    }
}
