//! The deciding part: no clock, no IO, no async, no logging. Events in, effects out; time is an argument.
//!
//! [`WorkerCore`] is one worker. All its parts read one `Facts` structure (`facts`) and write to one `Outbox`
//! (`outbox`):
//!
//! - `health` (the clock that runs only while the broker works), `fence`, `identity`, `roster` (heartbeats of all workers);
//! - `election`, and of the leader: `controller` (takes over, decides, publishes), `topology` (the fleet as it sees it),
//!   `trigger` (windows), `suspects` (checks before a worker counts as crashed), `unlisted`, `planner`;
//! - `assignment` (the partitions that a map gives to this worker), `consumer` (all of them), `partition` (one of them),
//!   `cursor`, `handover`, `release`;
//! - `policy`: the decisions that tests can replace by wrong ones.

#[macro_use]
mod invariant;

mod assignment;
mod config;
mod consumer;
mod controller;
mod cursor;
mod election;
mod facts;
mod fence;
mod handover;
mod health;
mod identity;
mod io;
mod outbox;
mod partition;
pub mod planner;
mod policy;
mod release;
mod roster;
mod rules;
mod shutdown;
mod state;
mod suspects;
mod topology;
mod trigger;
pub mod types;
mod unlisted;
mod worker;

pub use config::{Config, ConfigError, LeaseExpiry};
pub use cursor::{Cursor, MAX_ATTEMPTS, Position, PreviousOwner};
pub use io::{
    Condition, Effect, Event, LastMessage, LogInfo, LogInspection, LogPage, Message, Notice, PlanSummary,
    ProcessOutcome, ProcessRequest, Purpose, ReadError, RecoveryPoint, RequestId, SubjectList, Warning,
    WriteError, Written,
};
pub use policy::Policy;
pub use rules::ProtocolRule;
pub use state::{CalculatorState, WorkerState};
pub use worker::WorkerCore;
