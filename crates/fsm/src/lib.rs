//! State machines as tables.
//!
//! A machine is declared once, with [`machine!`]: its states, their names and numeric codes, and for each state the
//! states it may go to. Everything else is derived from that one table:
//!
//! - [`Fsm`] runs a machine: it refuses an illegal transition with a typed error ([`IllegalTransition`]) that names
//!   both states and what would have been legal, keeps a bounded history with time and cause, and adds up the time
//!   spent in each state;
//! - [`Machine`] describes it: the states in declaration order, who is terminal, who can reach whom;
//! - [`render`] prints it as a Mermaid diagram, a table or JSON.
//!
//! There is no clock here. Time is an argument, a [`Duration`](std::time::Duration) since whatever origin the caller
//! counts from.
//!
//! ```
//! use std::time::Duration;
//! use phalanx_fsm::{Fsm, machine};
//!
//! machine! {
//!     /// A door that can be locked for good.
//!     pub enum Door: "door" {
//!         /// Nobody can pass.
//!         Closed = 0, "CLOSED" => [Open, Locked];
//!         /// Everybody can pass.
//!         Open = 1, "OPEN" => [Closed];
//!         /// Nobody will ever pass.
//!         Locked = 2, "LOCKED" => [];
//!     }
//! }
//!
//! let mut door = Fsm::<Door>::new(Duration::ZERO);
//! door.transition(Duration::from_secs(3), Door::Open, "somebody knocked")?;
//! assert_eq!(door.state(), Door::Open);
//! assert_eq!(door.time_in(Door::Closed, Duration::from_secs(10)), Duration::from_secs(3));
//!
//! let refused = door.transition(Duration::from_secs(4), Door::Locked, "closing time").unwrap_err();
//! assert_eq!(
//!     refused.to_string(),
//!     "door: OPEN -> LOCKED is not a legal transition; from OPEN the machine may go to CLOSED"
//! );
//! # Ok::<(), phalanx_fsm::IllegalTransition<Door>>(())
//! ```

mod declare;
mod fsm;
pub mod render;

pub use declare::{Machine, State, StateDecl};
pub use fsm::{Fsm, IllegalTransition, Transition};
