//! The two state machines of coordination: the worker and the leader's calculator.

use phalanx_fsm::machine;

machine! {
    /// The states of a worker.
    ///
    /// `LEADER` and `FOLLOWER` are the states before the first assignment; afterwards the role is a second axis, and
    /// workers with an assignment mirror the leader's cluster state (`SCALING`, `REBALANCING`, `EMERGENCY`). The codes
    /// are the values of the state gauge.
    pub enum WorkerState: "worker" {
        /// Connecting to the broker and to the store.
        Initialization = 0, "INITIALIZATION" => [ClaimingId, Shutdown];
        /// Looking for a free stable id, or waiting for one as a standby.
        ClaimingId = 1, "CLAIMING_ID" => [Election, Initialization, Shutdown];
        /// Holds an id; the leader is being found.
        Election = 2, "ELECTION" => [Leader, Follower, ClaimingId, Degraded, Shutdown];
        /// Leads, and has no assignment of its own yet.
        Leader = 8, "LEADER" =>
            [Stable, Scaling, Rebalancing, Emergency, Follower, Degraded, ClaimingId, Shutdown];
        /// Follows, and has no assignment yet.
        Follower = 9, "FOLLOWER" => [Stable, Leader, Degraded, ClaimingId, Shutdown];
        /// Has an assignment and serves it.
        Stable = 3, "STABLE" => [Scaling, Rebalancing, Emergency, Degraded, ClaimingId, Shutdown];
        /// A change is pending; the window is open.
        Scaling = 4, "SCALING" => [Rebalancing, Emergency, Stable, Degraded, ClaimingId, Shutdown];
        /// A planned calculation is being made and published.
        Rebalancing = 5, "REBALANCING" => [Stable, Emergency, Degraded, ClaimingId, Shutdown];
        /// The partitions of a crashed worker are being redistributed.
        Emergency = 6, "EMERGENCY" => [Stable, Degraded, ClaimingId, Shutdown];
        /// Fenced: the cached assignment is kept and nothing is started.
        Degraded = 10, "DEGRADED" => [Stable, Leader, Follower, Election, ClaimingId, Shutdown];
        /// Leaving; nothing follows.
        Shutdown = 7, "SHUTDOWN" => [];
    }
}

machine! {
    /// The states of the leader's calculator.
    pub enum CalculatorState: "calculator" {
        /// The map is right.
        Idle = 0, "Idle" => [Scaling, Emergency];
        /// A window is open.
        Scaling = 1, "Scaling" => [Rebalancing, Emergency, Idle];
        /// Calculating and publishing a planned map.
        Rebalancing = 2, "Rebalancing" => [Idle, Emergency];
        /// Calculating and publishing the map of an emergency.
        Emergency = 3, "Emergency" => [Idle];
    }
}
