//! Scheduled events of the simulation.

use std::time::Duration;

use phalanx_cluster_core::types::{Entry, Key, Revision, Time};
use phalanx_cluster_core::{Effect, Event, RequestId};

use crate::fleet::ProcessId;
use crate::store::Results;

/// An action that is scheduled from outside.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduledAction {
    /// A process starts.
    Start,
    /// A process starts with another fleet size in its configuration.
    StartWithSize(Option<u32>),
    /// SIGKILL.
    Kill(ProcessId),
    /// SIGTERM.
    Terminate(ProcessId),
    /// SIGCONT.
    Resume(ProcessId),
    /// The heartbeats of a process arrive again, its answers are fast, and its watches are immediate.
    Mend(ProcessId),
    /// The log keeps messages for this time again.
    Retention(Duration),
    /// An operator sets the fleet size; none takes that back.
    FleetSize(Option<u32>),
    /// A message is published again.
    PublishAgain(u32, u64),
    /// A message is published again, under an id of its own.
    Replay(u32, u64),
    /// SIGKILL for the process that leads then.
    KillLeader,
    /// SIGKILL for the process that was started last.
    KillNewest,
    /// The embedded folder is opened again; processes that still use it are killed.
    ReopenFolder,
}

/// The next step of a message that is being processed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProcessingStep {
    /// The handler sends the results to the store.
    Store,
    /// The message crashes its process.
    Crash,
    /// The attempt fails.
    Fail,
    /// The handler finds that the message is poison.
    Poison,
    /// The attempt takes too long.
    TimeOut,
}

/// A scheduled event.
#[derive(Debug)]
pub(crate) enum SimEvent {
    /// A request reaches the broker or the store.
    Request(ProcessId, Effect),
    /// A request reaches the broker after its caller has given up.
    LateRequest(ProcessId, Effect),
    /// An event reaches a process.
    Arrival(ProcessId, Event),
    /// The watches of all processes but these show a change; processes from `until` on started later and have seen it.
    Broadcast { key: Key, entry: Option<Entry>, but: Vec<ProcessId>, until: u32 },
    /// The watches of a process show what was delayed.
    DeliverDelayed(ProcessId),
    /// A deadline of a process.
    Wake(ProcessId),
    /// The next step of a message.
    Step(ProcessId, u32, RequestId, ProcessingStep),
    /// The term of a lease is over.
    TermOver(Revision),
    /// Results reach the store.
    Rows(Box<Results>),
    /// A partition publishes a message.
    Traffic(u32),
    /// An action that was scheduled from outside, and when.
    Scheduled(Time, ScheduledAction),
}
