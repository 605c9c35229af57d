//! The deciding part: no clock, no IO, no async, no logging. Events in, effects out; time is an argument.
//!
//! [`Worker`] is one worker, made of small machines with a file each: `health` (the clock that runs only while the
//! broker works), `fence`, `identity`, `roster` (who is heard), `election`, `topology` (what the leader makes of
//! the roster), `trigger` (windows), `suspects` (before anybody is declared dead), `publication` and `controller`
//! (the leader's maps), `holdings` (what a map makes one own) and `shutdown`.

mod config;
mod consumption;
mod controller;
mod cursor;
mod election;
mod fence;
mod fleet_size;
mod guards;
mod handover;
mod health;
mod holdings;
mod identity;
mod io;
mod partition;
pub mod planner;
mod publication;
mod release;
mod roster;
mod shutdown;
mod state;
mod strangers;
mod suspects;
mod topology;
mod trigger;
pub mod types;
mod worker;

pub use config::{BadConfig, Config, Tenure};
pub use cursor::{ATTEMPTS, Cursor, Position, Predecessor};
pub use guards::Guard;
pub use io::{
    Condition, Effect, Event, Last, LogInfo, Message, Notice, Origin, Outcome, Page, Planned, Purpose,
    ReadError, Subjects, Survey, Ticket, Warning, Work, WriteError, Written,
};
pub use state::{CalculatorState, WorkerState};
pub use worker::Worker;
