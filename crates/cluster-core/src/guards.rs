//! Rules that tests can take out, to see that each is needed.
//!
//! Every rule here was found by model checking: without it a promise breaks. A build with the feature `mutants` can run a
//! worker without one of them; in any other build all are kept, and asking costs nothing.

/// A rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guard {
    /// The fence counts from the sending of a heartbeat, not from its answer.
    FenceFromSending,
    /// Only heartbeats count for the fence, no other write.
    HeartbeatAlone,
    /// The fence is left by heartbeat, claim and map, in this order.
    FenceExitOrder,
    /// Silence is counted only while one's own heartbeat comes back.
    HealthyClock,
    /// Free ids that the map names are taken first.
    MapIdsFirst,
    /// The graces of the last leader are inherited.
    InheritedGraces,
    /// Every worker times heartbeats itself, so a new leader knows who has been silent.
    OwnTimers,
    /// Whoever was never heard is missing, not crashed.
    MissingIsNotCrashed,
    /// A retained value is no sign of life.
    RetainedIsNoLife,
    /// A map that an emergency left unbalanced is evened out.
    EveningOut,
    /// A new version is above every version anybody has seen.
    VersionAboveAll,
    /// A new leader touches the map before it calculates.
    TouchFirst,
    /// Cursors are taken anew after the fence.
    RetakeAfterFence,
    /// A cursor is taken before the first message.
    TakeFirst,
    /// A partition that was lost and regained is taken anew.
    RetakeAfterRegain,
    /// A gainer waits until the holder reports exactly its version.
    ExactVersion,
    /// The chart state is read at exactly the committed position, with the history it lists.
    StateAtCommitted,
    /// A lower take never replaces a higher one.
    HigherTakeWins,
    /// Stamps grow although the clock of the broker steps back.
    StampKept,
    /// Readers follow only the take that the contexts name.
    TakeThatCounts,
    /// What is remembered is dropped at every take and every refused or unanswered swap.
    CacheDropped,
    /// A swap without an answer is settled before anything else.
    SettleFirst,
    /// A take from the dead counts against the message.
    DeathsCount,
    /// Nothing is condemned for deaths before it ran alone.
    SoloFirst,
    /// A death sentence is swapped into the cursor before it is published.
    DeadFirst,
    /// The id of a notification names tool, chamber and context.
    MessageIds,
    /// The log is read from the cursor's own sequence.
    ReadFromCursor,
    /// Positions and dead letters carry the generation.
    Generations,
    /// A cursor made anew starts at the predecessor of the newest chart state, above everything stored.
    OriginFromStore,
    /// The identity of the log is read after the cursor.
    IdentityAfterCursor,
    /// The holder reads its cursor at each map and sweep.
    HolderReadsCursor,
    /// A dead letter leaves the unchanged chart state at its position.
    DeadWritesState,
    /// Ids and leases are given back by compare-and-swap.
    ReleaseBySwap,
    /// The id is given back last.
    IdLast,
    /// The leader reads the claim, then the heartbeat, then frees exactly that claim.
    ReadBeforeFree,
    /// A standby counts as ready.
    StandbyIsReady,
    /// Claims do not expire after seconds.
    NoShortTtl,
    /// The grace of a leaver counts from its own farewell.
    GracePerId,
    /// A worker that leaves marks its cursors as released.
    ReleasedOnLeave,
}

impl Guard {
    /// Every rule that can be taken out.
    pub const ALL: [Self; 39] = [
        Self::FenceFromSending,
        Self::HeartbeatAlone,
        Self::FenceExitOrder,
        Self::HealthyClock,
        Self::MapIdsFirst,
        Self::InheritedGraces,
        Self::OwnTimers,
        Self::MissingIsNotCrashed,
        Self::RetainedIsNoLife,
        Self::EveningOut,
        Self::VersionAboveAll,
        Self::TouchFirst,
        Self::RetakeAfterFence,
        Self::TakeFirst,
        Self::RetakeAfterRegain,
        Self::ExactVersion,
        Self::StateAtCommitted,
        Self::HigherTakeWins,
        Self::StampKept,
        Self::TakeThatCounts,
        Self::CacheDropped,
        Self::SettleFirst,
        Self::DeathsCount,
        Self::SoloFirst,
        Self::DeadFirst,
        Self::MessageIds,
        Self::ReadFromCursor,
        Self::Generations,
        Self::OriginFromStore,
        Self::IdentityAfterCursor,
        Self::HolderReadsCursor,
        Self::DeadWritesState,
        Self::ReleaseBySwap,
        Self::IdLast,
        Self::ReadBeforeFree,
        Self::StandbyIsReady,
        Self::NoShortTtl,
        Self::GracePerId,
        Self::ReleasedOnLeave,
    ];
}
