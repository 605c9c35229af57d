//! The names of the rules that tests can disable. [`Policy`](super::Policy) decides by them.

/// A rule of the protocol that the worker enforces. Rules that only its environment can enforce are not listed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProtocolRule {
    /// The fence counts from the sending of a heartbeat, not from its answer.
    FenceFromSending,
    /// Only heartbeats count for the fence, no other write.
    OnlyHeartbeatsProve,
    /// The fence opens after heartbeat, claim and map, in this order.
    FenceExitOrder,
    /// Silence counts only while the own heartbeat returns through the watch.
    HealthyClock,
    /// Free ids that the map names are claimed first.
    MapIdsFirst,
    /// A new leader inherits the grace periods of the last one.
    InheritGracePeriods,
    /// Every worker times heartbeats itself, so a new leader knows who has been silent.
    EveryWorkerTimes,
    /// A worker that was never heard is missing, not crashed.
    MissingIsNotCrashed,
    /// A retained value does not prove that its writer lives.
    RetainedIsNotAlive,
    /// A map that an emergency left unbalanced is rebalanced later.
    RebalanceAfterEmergency,
    /// A new version is above every version that any worker has seen.
    VersionAboveAll,
    /// A new leader writes its epoch into the map before it calculates.
    ClaimMapFirst,
    /// Cursors get a new fencing token after the fence.
    NewTokenAfterFence,
    /// A cursor is taken over before the first message.
    TakeOverFirst,
    /// A partition that was removed and added again gets a new fencing token.
    NewTokenAfterReassignment,
    /// The new owner waits until the previous one reports exactly its version.
    ExactVersion,
    /// Write timestamps grow although the clock of the broker steps back.
    MonotonicTimestamps,
    /// The cache is dropped at every takeover and every refused or unanswered cursor write.
    CacheDropped,
    /// An unanswered cursor write is verified before anything else.
    VerifyUnknownFirst,
    /// A takeover from a crashed worker counts against the message.
    CrashesCount,
    /// A message is isolated before worker crashes dead-letter it.
    IsolateFirst,
    /// A dead letter is recorded in the cursor before it is published.
    RecordDeadLetterFirst,
    /// The log is read from the cursor's own sequence.
    ReadFromCursor,
    /// Positions and dead letters carry the generation.
    Generations,
    /// A recreated cursor starts at the predecessor of the newest handler state, above everything stored.
    RecoverFromStore,
    /// The identity of the log is read after the cursor.
    LogIdAfterCursor,
    /// The owner reads its cursor at each map and poll.
    OwnerRereadsCursor,
    /// A dead letter stores the unchanged handler state at its position.
    DeadLetterWritesState,
    /// Ids and leases are released by compare-and-swap.
    ReleaseByCas,
    /// The id is released last.
    ReleaseIdLast,
    /// The leader reads the claim, then the heartbeat, then frees exactly that claim.
    ReadBeforeFree,
    /// The grace period of a worker counts from its own leave record.
    GracePeriodPerId,
    /// A worker that leaves marks its cursors as released.
    ReleasedOnLeave,
}

impl ProtocolRule {
    /// Whether this build can disable a rule.
    pub const CAN_BE_DISABLED: bool = cfg!(feature = "mutants");

    /// Every rule that can be disabled.
    pub const ALL: [Self; 33] = [
        Self::FenceFromSending,
        Self::OnlyHeartbeatsProve,
        Self::FenceExitOrder,
        Self::HealthyClock,
        Self::MapIdsFirst,
        Self::InheritGracePeriods,
        Self::EveryWorkerTimes,
        Self::MissingIsNotCrashed,
        Self::RetainedIsNotAlive,
        Self::RebalanceAfterEmergency,
        Self::VersionAboveAll,
        Self::ClaimMapFirst,
        Self::NewTokenAfterFence,
        Self::TakeOverFirst,
        Self::NewTokenAfterReassignment,
        Self::ExactVersion,
        Self::MonotonicTimestamps,
        Self::CacheDropped,
        Self::VerifyUnknownFirst,
        Self::CrashesCount,
        Self::IsolateFirst,
        Self::RecordDeadLetterFirst,
        Self::ReadFromCursor,
        Self::Generations,
        Self::RecoverFromStore,
        Self::LogIdAfterCursor,
        Self::OwnerRereadsCursor,
        Self::DeadLetterWritesState,
        Self::ReleaseByCas,
        Self::ReleaseIdLast,
        Self::ReadBeforeFree,
        Self::GracePeriodPerId,
        Self::ReleasedOnLeave,
    ];
}
