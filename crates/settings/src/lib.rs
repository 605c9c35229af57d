//! The settings of a defender, each written once: name, type with unit and range, default, help text.
//!
//! [`CONNECTIONS`] and [`DEFENDER`] are the tables. Environment variables, flags, the table in `docs/operations.md` and the
//! errors come from them. A [`Parser`] reads values and collects all errors, so that they can be reported together.
//!
//! ```
//! use phalanx_settings::{Given, MAX_DEFENDERS, NATS_SERVERS, Parser};
//!
//! let given = Given::from_pairs([("NATS_SERVERS", "nats://a:4222"), ("MAX_DEFENDERS", "0")]);
//! let mut parser = Parser::new(&given);
//! assert_eq!(parser.given(&NATS_SERVERS).as_deref(), Some("nats://a:4222"));
//! assert_eq!(parser.get(&MAX_DEFENDERS), 100, "the default");
//! assert_eq!(parser.errors, ["MAX_DEFENDERS is \"0\"; allowed is a whole number from 1 to 100000"]);
//! ```

mod kinds;
mod parser;
mod setting;
mod table;

pub use self::kinds::{Choice, File, Fraction, Kind, Replicas, Seconds, Secret, Switch, Text, Whole};
pub use self::parser::{Given, Parser};
pub use self::setting::{AnySetting, Setting, markdown};
pub use self::table::*;
