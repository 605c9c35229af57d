//! The two machines of the engine: the orchestrator above, and one provider below it.

use phalanx_fsm::machine;

machine! {
    /// The orchestrator of all providers.
    pub enum MacroState: "macro" {
        /// Setting up and loading what was saved.
        Bootstrapping = 0, "BOOTSTRAPPING" => [Orchestrating, Draining];
        /// Providers run.
        Orchestrating = 1, "ORCHESTRATING" => [Stabilizing, Draining];
        /// No provider can make progress.
        Stabilizing = 2, "STABILIZING" => [Orchestrating, Draining];
        /// Cleaning up before the end.
        Draining = 3, "DRAINING" => [];
    }
}

machine! {
    /// One provider of data, for one run.
    pub enum ProviderState: "provider" {
        /// Waiting to be started.
        Idle = 0, "IDLE" => [Acquiring];
        /// Asking the broker for permits.
        Acquiring = 1, "ACQUIRING" => [Running, Paused, Terminated];
        /// Working, with permits in hand.
        Running = 2, "RUNNING" => [WaitingQuota, WaitingBackoff, Paused, Terminated];
        /// The last permit was revoked; will ask again.
        WaitingQuota = 3, "WAITING_QUOTA" => [Acquiring, Terminated];
        /// The source asked for patience; will ask again at the deadline.
        WaitingBackoff = 4, "WAITING_BACKOFF" => [Acquiring, Terminated];
        /// Paused by a person.
        Paused = 5, "PAUSED" => [Acquiring, Terminated];
        /// The run is over.
        Terminated = 6, "TERMINATED" => [];
    }
}
