//! The stages of leaving, in an order in which no other worker inherits anything that is still in use: drain, release
//! the cursors, write the leave record, resign, and release the id last.

use super::io::RequestId;

/// How far a worker has come with leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShutdownPhase {
    /// Work runs to its end.
    Draining,
    /// Work has ended; the worker marks its cursors as released.
    ReleasingCursors,
    /// A late heartbeat could arrive after the leave record: all must be answered first.
    AwaitingHeartbeats,
    /// The leave record is being written.
    WritingLeaveRecord(RequestId),
    /// A write of the lease is on its way, then it is given back.
    AwaitingLease,
    /// The lease is being given back.
    Resigning(RequestId),
    /// A renewal is on its way, then the id is given back.
    AwaitingRenewal,
    /// The id is being given back.
    Releasing(RequestId),
    /// Gone.
    Done,
}

impl ShutdownPhase {
    /// Whether the worker still works or writes cursors, up to the end of the drain time.
    pub(super) fn needs_heartbeats(self) -> bool {
        matches!(self, Self::Draining | Self::ReleasingCursors)
    }
}
