//! What a person should know.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::backend;
use crate::codec::DecodeError;
use crate::core::types::Sequence;

/// Something went wrong, or is worth a look. The worker goes on.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The backend refused or did not answer. What the core wanted is tried again.
    #[error("{0}")]
    Backend(backend::Error),
    /// A stored value cannot be read.
    #[error("{0}")]
    BadValue(#[from] DecodeError),
    /// A bucket or a log was removed; it is made again.
    #[error("{0}; it is made again")]
    Removed(backend::Error),
    /// A bucket was made anew or has lost writes: everything is forgotten and read again.
    #[error(
        "the bucket of {0} was made anew or has lost writes: this worker stops, forgets what it knew and begins again"
    )]
    BucketReplaced(&'static str),
    /// A part of the map is missing. The map that is known stays in force, and the new one is read again.
    #[error("map at revision {revision}: {reason}; the map that is known stays, and it is read again")]
    MapIncomplete {
        /// Which value of the map.
        revision: u64,
        /// What is missing.
        reason: String,
    },
    /// A hook failed.
    #[error("the hook {hook} failed: {reason}")]
    HookFailed {
        /// Which one.
        hook: &'static str,
        /// Its own words.
        reason: String,
    },
    /// A hook panicked.
    #[error("the hook {hook} panicked: {reason}")]
    HookPanicked {
        /// Which one.
        hook: &'static str,
        /// Its own words.
        reason: String,
    },
    /// A hook did not return in time. It is given up; where it blocks its thread, the next one waits for it.
    #[error("the hook {hook} has not returned after {after:?}; it is given up")]
    HookStuck {
        /// Which one.
        hook: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// Too many calls waited for a busy hook, and one was dropped.
    #[error("dropped a call of the hook {hook}: too many calls wait for a busy hook")]
    HookCallDropped {
        /// The hook.
        hook: &'static str,
    },
    /// An assertion of the worker was violated, which is a bug of this library. The worker carries out no effect of that
    /// step and restarts.
    #[error("invariant violated at {0}; restarting the worker")]
    InvariantViolated(String),
    /// The partitions could not be read; those known stay.
    #[error("the partitions could not be read: {0}; those known stay")]
    Partitions(String),
    /// No bell could be hung up for a partition: the sweep alone serves it.
    #[error("no doorbell for {partition}: {reason}; it is looked at every sweep")]
    SubscriptionFailed {
        /// The partition.
        partition: Arc<str>,
        /// Why.
        reason: String,
    },
    /// Messages were gone before they were read.
    #[error("messages of {partition} between {after} and {before} were gone before they were read")]
    Expired {
        /// The partition.
        partition: Arc<str>,
        /// Everything up to here was read.
        after: Sequence,
        /// The first that the log still holds.
        before: Sequence,
    },
    /// The log is another one than before: it is read from its beginning.
    #[error(
        "the log of {partition} is not the one that was read before: it is read from its beginning, as generation {generation}"
    )]
    LogReplaced {
        /// The partition.
        partition: Arc<str>,
        /// The generation of its positions from now on.
        generation: u64,
    },
    /// A partition that is not in the list has messages.
    #[error("{partition} is not in the list and has messages: it is adopted")]
    Adopted {
        /// The partition.
        partition: Arc<str>,
    },
    /// A message is dead.
    #[error("message {sequence} of {partition} is dead: {reason}")]
    DeadLetter {
        /// The partition.
        partition: Arc<str>,
        /// The message.
        sequence: Sequence,
        /// Why.
        reason: Arc<str>,
    },
    /// Buckets and logs named no group, and name this one now.
    #[error("{} named no group and belong to group {group:?} from now on", .stores.join(", "))]
    StoresAdopted {
        /// The group.
        group: String,
        /// The buckets and logs.
        stores: Vec<String>,
    },
    /// Every id is taken.
    #[error("every one of the {ids} ids is taken; it is tried again")]
    PoolExhausted {
        /// How many ids there are.
        ids: u32,
    },
    /// Another process holds our id.
    #[error("another process holds {worker}: this worker has stopped and looks for an id")]
    IdentityLost {
        /// The worker id.
        worker: String,
    },
    /// A standby waits for more than two minutes.
    #[error(
        "this standby has waited for more than two minutes: there are more replicas than the fleet size says"
    )]
    IdleStandby,
}
