//! Rules that tests can take out, to see that each is needed.
//!
//! Every rule here was found by model checking: without it a promise breaks. A build with the feature `mutants` can run a
//! worker without one of them; in any other build all are kept, and asking costs nothing.

/// A rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProtocolRule {
    /// The fence counts from the sending of a heartbeat, not from its answer.
    FenceFromSending,
    /// Only heartbeats count for the fence, no other write.
    OnlyHeartbeatsProve,
    /// The fence is left by heartbeat, claim and map, in this order.
    FenceExitOrder,
    /// Silence is counted only while one's own heartbeat comes back.
    HealthyClock,
    /// Free ids that the map names are taken first.
    MapIdsFirst,
    /// The graces of the last leader are inherited.
    InheritGracePeriods,
    /// Every worker times heartbeats itself, so a new leader knows who has been silent.
    EveryWorkerTimes,
    /// Whoever was never heard is missing, not crashed.
    MissingIsNotCrashed,
    /// A retained value is no sign of life.
    RetainedIsNotAlive,
    /// A map that an emergency left unbalanced is evened out.
    RebalanceAfterEmergency,
    /// A new version is above every version anybody has seen.
    VersionAboveAll,
    /// A new leader touches the map before it calculates.
    ClaimMapFirst,
    /// Cursors are taken anew after the fence.
    NewTokenAfterFence,
    /// A cursor is taken before the first message.
    TakeOverFirst,
    /// A partition that was lost and regained is taken anew.
    NewTokenAfterReassignment,
    /// A gainer waits until the holder reports exactly its version.
    ExactVersion,
    /// The chart state is read at exactly the committed position, with the history it lists.
    StateAtCommitted,
    /// A lower take never replaces a higher one.
    HigherTokenWins,
    /// Stamps grow although the clock of the broker steps back.
    MonotonicTimestamps,
    /// Readers follow only the take that the contexts name.
    ReadersFollowToken,
    /// What is remembered is dropped at every take and every refused or unanswered swap.
    CacheDropped,
    /// A swap without an answer is settled before anything else.
    VerifyUnknownFirst,
    /// A take from the dead counts against the message.
    CrashesCount,
    /// Nothing is condemned for deaths before it ran alone.
    IsolateFirst,
    /// A death sentence is swapped into the cursor before it is published.
    RecordDeadLetterFirst,
    /// The id of a notification names tool, partition and context.
    MessageIds,
    /// The log is read from the cursor's own sequence.
    ReadFromCursor,
    /// Positions and dead letters carry the generation.
    Generations,
    /// A cursor made anew starts at the predecessor of the newest chart state, above everything stored.
    RecoverFromStore,
    /// The identity of the log is read after the cursor.
    LogIdAfterCursor,
    /// The holder reads its cursor at each map and sweep.
    OwnerRereadsCursor,
    /// A dead letter leaves the unchanged chart state at its position.
    DeadLetterWritesState,
    /// Ids and leases are given back by compare-and-swap.
    ReleaseByCas,
    /// The id is given back last.
    ReleaseIdLast,
    /// The leader reads the claim, then the heartbeat, then frees exactly that claim.
    ReadBeforeFree,
    /// A standby counts as ready.
    StandbyIsReady,
    /// Claims do not expire after seconds.
    NoShortTtl,
    /// The grace of a leaver counts from its own farewell.
    GracePeriodPerId,
    /// A worker that leaves marks its cursors as released.
    ReleasedOnLeave,
}

impl ProtocolRule {
    /// Every rule that can be taken out.
    pub const ALL: [Self; 39] = [
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
        Self::StateAtCommitted,
        Self::HigherTokenWins,
        Self::MonotonicTimestamps,
        Self::ReadersFollowToken,
        Self::CacheDropped,
        Self::VerifyUnknownFirst,
        Self::CrashesCount,
        Self::IsolateFirst,
        Self::RecordDeadLetterFirst,
        Self::MessageIds,
        Self::ReadFromCursor,
        Self::Generations,
        Self::RecoverFromStore,
        Self::LogIdAfterCursor,
        Self::OwnerRereadsCursor,
        Self::DeadLetterWritesState,
        Self::ReleaseByCas,
        Self::ReleaseIdLast,
        Self::ReadBeforeFree,
        Self::StandbyIsReady,
        Self::NoShortTtl,
        Self::GracePeriodPerId,
        Self::ReleasedOnLeave,
    ];
}
