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
}

impl Guard {
    /// Every rule that can be taken out.
    pub const ALL: [Self; 12] = [
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
    ];
}
