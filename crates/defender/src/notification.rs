//! What stands in a chamber's log: that a run is complete, or a command.
//!
//! A command is a message in the log of the chamber it is for, so it is ordered with the chamber's runs and takes effect
//! once, between the same two runs, whoever processes them.

use std::sync::Arc;

use jiff::Timestamp;
use phalanx_cluster::names::{self, NameError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::record::Chamber;

/// The largest message, in bytes.
pub const MAX_MESSAGE: usize = 64 << 10;

/// The longest id of a context.
pub const LONGEST_CONTEXT: usize = 128;

/// A message of a chamber's log.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A run is complete.
    Completed(Notification),
    /// Charts are to learn their limits anew.
    Rebaseline(Rebaseline),
}

/// A run is complete and its T-chart is stored.
///
/// ```
/// use phalanx_defender::notification::{Message, Notification};
/// use phalanx_defender::record::Chamber;
///
/// let chamber = Chamber::new("tool001", "chamber1")?;
/// let sent = Notification::new(chamber.clone(), "ctx_20251024_103045", "2025-10-24T10:30:45Z".parse()?)?;
/// assert_eq!(sent.t_chart_key(), "tool001:chamber1:ctx_20251024_103045");
/// assert_eq!(Message::parse(&sent.to_json(), &chamber)?, Message::Completed(sent));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// The chamber.
    pub chamber: Chamber,
    /// The run.
    pub context: Arc<str>,
    /// When it was complete.
    pub timestamp: Timestamp,
}

/// Charts are to learn their limits anew.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebaseline {
    /// The chamber.
    pub chamber: Chamber,
    /// The id of the command: the same command sent twice takes effect once.
    pub context: Arc<str>,
    /// When it was given.
    pub timestamp: Timestamp,
    /// Which charts; none: all of them.
    pub charts: Option<Vec<Arc<str>>>,
}

/// A message that can never be processed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotificationError {
    /// It is longer than any notification.
    #[error("the message has {0} bytes, {MAX_MESSAGE} is the most")]
    TooLarge(usize),
    /// It is not JSON, or a field is missing or of another type.
    #[error("the message is not a notification: {0}")]
    NotANotification(String),
    /// A tool, a chamber or a chart has a name that cannot be.
    #[error("{field}: {error}")]
    BadName {
        /// The field.
        field: &'static str,
        /// What is wrong with the name.
        error: NameError,
    },
    /// The context has an id that cannot be.
    #[error(transparent)]
    BadContext(#[from] BadContext),
    /// It was sent to the log of another chamber.
    #[error("the message is about {found}, and stands in the log of {expected}")]
    OtherChamber {
        /// The chamber it names.
        found: Chamber,
        /// The chamber of its subject.
        expected: Chamber,
    },
    /// The key of its T-chart does not follow from its names.
    #[error("tChartKey is {found:?}; of this chamber and context it is {expected:?}")]
    OtherKey {
        /// The key it names.
        found: String,
        /// The key that follows from its other fields.
        expected: String,
    },
    /// It has no time that can be read.
    #[error("timestamp {found:?} is not a time like 2025-10-24T10:30:45Z: {error}")]
    BadTimestamp {
        /// What stands there.
        found: String,
        /// What is wrong with it.
        error: String,
    },
    /// A command that does not exist.
    #[error("unknown command {0:?}; there is: rebaseline")]
    UnknownCommand(String),
}

/// An id of a context that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadContext {
    /// It has no character.
    #[error("contextId is empty; it has 1 to {LONGEST_CONTEXT} printable ASCII characters without blanks")]
    Empty,
    /// It has too many characters.
    #[error("contextId {shown:?} has {bytes} bytes; at most {LONGEST_CONTEXT} are allowed")]
    TooLong {
        /// Its beginning.
        shown: String,
        /// Its length.
        bytes: usize,
    },
    /// It has a character that keys and headers do not take.
    #[error("contextId {context:?} has {character:?}; allowed are printable ASCII characters without blanks")]
    BadCharacter {
        /// The id.
        context: String,
        /// The first character that is not allowed.
        character: char,
    },
}

/// Checks the id of a context: it becomes part of keys, of message ids and of dead letters, but never of a subject, so it
/// may be any printable ASCII without blanks, up to [`LONGEST_CONTEXT`].
///
/// ```
/// use phalanx_defender::notification::check_context;
/// assert!(check_context("2025-10-24T10:30:45/wafer=7").is_ok());
/// assert!(check_context("two words").is_err());
/// ```
pub fn check_context(context: &str) -> Result<(), BadContext> {
    if context.is_empty() {
        return Err(BadContext::Empty);
    }
    if context.len() > LONGEST_CONTEXT {
        let shown = context.chars().take(32).chain(['…']).collect();
        return Err(BadContext::TooLong { shown, bytes: context.len() });
    }
    match context.chars().find(|c| !c.is_ascii_graphic()) {
        Some(character) => Err(BadContext::BadCharacter { context: context.to_owned(), character }),
        None => Ok(()),
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    tool_id: String,
    chamber_id: String,
    context_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    t_chart_key: Option<String>,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charts: Option<Vec<String>>,
}

impl Notification {
    /// A notification; the id of the context is checked.
    pub fn new(chamber: Chamber, context: &str, timestamp: Timestamp) -> Result<Self, BadContext> {
        check_context(context)?;
        Ok(Self { chamber, context: context.into(), timestamp })
    }

    /// The key of the T-chart, which is the id of the message, too: `tool:chamber:context`.
    pub fn t_chart_key(&self) -> String {
        format!("{}:{}", self.chamber, self.context)
    }

    /// The message.
    pub fn to_json(&self) -> Vec<u8> {
        Wire {
            t_chart_key: Some(self.t_chart_key()),
            ..Wire::new(&self.chamber, &self.context, self.timestamp)
        }
        .to_json()
    }
}

impl Rebaseline {
    /// The message.
    pub fn to_json(&self) -> Vec<u8> {
        let charts =
            self.charts.as_ref().map(|charts| charts.iter().map(|name| (**name).to_owned()).collect());
        Wire {
            command: Some("rebaseline".to_owned()),
            charts,
            ..Wire::new(&self.chamber, &self.context, self.timestamp)
        }
        .to_json()
    }

    /// Whether a chart is meant.
    pub fn names(&self, chart: &str) -> bool {
        self.charts.as_ref().is_none_or(|charts| charts.iter().any(|name| **name == *chart))
    }
}

impl Wire {
    fn new(chamber: &Chamber, context: &str, timestamp: Timestamp) -> Self {
        Self {
            tool_id: chamber.tool().to_owned(),
            chamber_id: chamber.chamber().to_owned(),
            context_id: context.to_owned(),
            t_chart_key: None,
            timestamp: timestamp.to_string(),
            command: None,
            charts: None,
        }
    }

    fn to_json(&self) -> Vec<u8> {
        match serde_json::to_vec(self) {
            Ok(bytes) => bytes,
            Err(error) => unreachable!("texts and lists of texts: {error}"),
        }
    }
}

impl Message {
    /// Reads a message of the log of `chamber`. Fields it does not know are let be: a newer sender may have more to say.
    pub fn parse(payload: &[u8], chamber: &Chamber) -> Result<Self, NotificationError> {
        if payload.len() > MAX_MESSAGE {
            return Err(NotificationError::TooLarge(payload.len()));
        }
        let wire: Wire = serde_json::from_slice(payload)
            .map_err(|error| NotificationError::NotANotification(error.to_string()))?;
        let named = |field, name: &str| {
            names::check(name).map_err(|error| NotificationError::BadName { field, error })
        };
        named("toolId", &wire.tool_id)?;
        named("chamberId", &wire.chamber_id)?;
        check_context(&wire.context_id)?;
        let found = Chamber::new(&wire.tool_id, &wire.chamber_id)
            .map_err(|error| NotificationError::BadName { field: "toolId", error })?;
        if found != *chamber {
            return Err(NotificationError::OtherChamber { found, expected: chamber.clone() });
        }
        let timestamp =
            wire.timestamp.parse::<Timestamp>().map_err(|error| NotificationError::BadTimestamp {
                found: wire.timestamp.chars().take(64).collect(),
                error: error.to_string(),
            })?;
        let context: Arc<str> = wire.context_id.as_str().into();
        match wire.command.as_deref() {
            None => {
                let notification = Notification { chamber: found, context, timestamp };
                let expected = notification.t_chart_key();
                match wire.t_chart_key {
                    Some(key) if key == expected => Ok(Self::Completed(notification)),
                    Some(found) => Err(NotificationError::OtherKey { found, expected }),
                    None => Err(NotificationError::NotANotification("missing field `tChartKey`".to_owned())),
                }
            }
            Some("rebaseline") => {
                for chart in wire.charts.iter().flatten() {
                    named("charts", chart)?;
                }
                let charts = wire.charts.map(|charts| charts.into_iter().map(Into::into).collect());
                Ok(Self::Rebaseline(Rebaseline { chamber: found, context, timestamp, charts }))
            }
            Some(other) => Err(NotificationError::UnknownCommand(other.chars().take(64).collect())),
        }
    }

    /// The id of the run or the command.
    pub fn context(&self) -> &Arc<str> {
        match self {
            Self::Completed(notification) => &notification.context,
            Self::Rebaseline(command) => &command.context,
        }
    }

    /// Its time.
    pub fn timestamp(&self) -> Timestamp {
        match self {
            Self::Completed(notification) => notification.timestamp,
            Self::Rebaseline(command) => command.timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SENT: &str = r#"{"toolId":"tool001","chamberId":"chamber1","contextId":"ctx_20251024_103045",
        "tChartKey":"tool001:chamber1:ctx_20251024_103045","timestamp":"2025-10-24T10:30:45Z"}"#;

    fn chamber() -> Chamber {
        Chamber::new("tool001", "chamber1").unwrap()
    }

    fn parse(text: &str) -> Result<Message, NotificationError> {
        Message::parse(text.as_bytes(), &chamber())
    }

    #[test]
    fn the_notification_of_the_requirements_is_read() {
        let Message::Completed(read) = parse(SENT).unwrap() else { panic!() };
        assert_eq!(&*read.context, "ctx_20251024_103045");
        assert_eq!(read.timestamp.to_string(), "2025-10-24T10:30:45Z");
        let unknown = SENT.replace("{\"toolId\"", "{\"lot\":{\"a\":[1]},\"toolId\"");
        assert_eq!(parse(&unknown).unwrap(), Message::Completed(read));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_reason() {
        use NotificationError as E;
        let refused = |old: &str, new: &str| parse(&SENT.replace(old, new)).unwrap_err();
        assert!(matches!(parse("not json"), Err(E::NotANotification(_))));
        assert!(matches!(parse("{}"), Err(E::NotANotification(_))));
        assert!(matches!(parse("[1]"), Err(E::NotANotification(_))));
        assert!(matches!(refused("\"tool001\",", "7,"), E::NotANotification(_)));
        assert!(matches!(refused("\"tool001\",", "\"to.ol\","), E::BadName { field: "toolId", .. }));
        assert!(matches!(refused("\"tool001\",", "\"tool002\","), E::OtherChamber { .. }));
        assert!(matches!(refused("\"ctx_20251024_103045\",", "\"\","), E::BadContext(BadContext::Empty)));
        assert!(matches!(refused("\"ctx_20251024_103045\",", "\"a b\","), E::BadContext(_)));
        assert!(matches!(refused("1:ctx_2025", "1:ctx_2026"), E::OtherKey { .. }));
        assert!(matches!(refused("\"tChartKey\"", "\"key\""), E::NotANotification(_)));
        assert!(matches!(refused("2025-10-24T10:30:45Z", "yesterday"), E::BadTimestamp { .. }));
        assert!(matches!(refused("{\"toolId\"", "{\"command\":\"stop\",\"toolId\""), E::UnknownCommand(_)));
        assert!(matches!(parse(&" ".repeat(MAX_MESSAGE + 1)), Err(E::TooLarge(_))));
        assert!(matches!(parse(&"[".repeat(50_000)), Err(E::NotANotification(_))), "deep nesting");
    }

    #[test]
    fn a_command_returns_as_it_was_sent() {
        let all = Rebaseline {
            chamber: chamber(),
            context: "cmd-1".into(),
            timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
            charts: None,
        };
        let some = Rebaseline { charts: Some(vec!["rf".into()]), ..all.clone() };
        for command in [all, some] {
            let read = Message::parse(&command.to_json(), &chamber()).unwrap();
            assert_eq!(read, Message::Rebaseline(command));
        }
    }

    proptest! {
        #[test]
        fn mutations_and_prefixes_never_panic(cut in 0..SENT.len(), at in 0..SENT.len(), byte: u8) {
            prop_assert!(Message::parse(&SENT.as_bytes()[..cut], &chamber()).is_err());
            let mut bytes = SENT.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = Message::parse(&bytes, &chamber());
        }

        #[test]
        fn every_notification_that_can_be_made_is_read_back(context in "[!-~]{1,128}", seconds in -1_000_000_000i64..4_000_000_000) {
            let timestamp = Timestamp::from_second(seconds).unwrap();
            let sent = Notification::new(chamber(), &context, timestamp).unwrap();
            prop_assert_eq!(Message::parse(&sent.to_json(), &chamber()), Ok(Message::Completed(sent)));
        }
    }
}
