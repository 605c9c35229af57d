//! The deciding part: no clock, no IO, no async, no logging. Events in, effects out; time is an argument.
//!
//! [`WorkerCore`] is one worker, made of small machines with a file each: `health` (the clock that runs only while the
//! broker works), `fence`, `identity`, `roster` (who is heard), `election`, `topology` (what the leader makes of
//! the roster), `trigger` (windows), `suspects` (before anybody is declared dead), `publication` and `controller`
//! (the leader's maps), `assignment` (what a map makes one own) and `shutdown`.

mod assignment;
mod config;
mod consumer;
mod controller;
mod cursor;
mod election;
mod fence;
mod fleet_size;
mod handover;
mod health;
mod identity;
mod io;
mod partition;
pub mod planner;
mod publication;
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
pub use rules::ProtocolRule;
pub use state::{CalculatorState, WorkerState};
pub use worker::WorkerCore;
