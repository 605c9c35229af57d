//! Leaving, in an order that lets nobody inherit what is still in use: drain, farewell, resign, and the id last.

use super::io::Ticket;

/// How far a worker has come with leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Work runs to its end.
    Draining,
    /// A heartbeat that is on its way could revive us after the farewell: all must be answered first.
    AwaitingHeartbeats,
    /// The farewell is on its way.
    Farewell(Ticket),
    /// A write of the lease is on its way, then it is given back.
    AwaitingLease,
    /// The lease is being given back.
    Resigning(Ticket),
    /// A renewal is on its way, then the id is given back.
    AwaitingRenewal,
    /// The id is being given back.
    Releasing(Ticket),
    /// Gone.
    Done,
}
