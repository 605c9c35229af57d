//! Messages that were given up: what they say, and what becomes of them.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use jiff::Timestamp;
use phalanx_cluster::backend::{AppendCondition, Error, Log, Message};
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::names;
use crate::record::Chamber;

/// Which dead letter: the chamber and the place its message had, written `tool.chamber.generation-sequence`.
///
/// ```
/// use phalanx_defender::dead_letter::Id;
///
/// let id: Id = "etch-01.A.1-42".parse()?;
/// assert_eq!((id.chamber.to_string().as_str(), id.position.sequence.0), ("etch-01:A", 42));
/// assert_eq!(id.to_string(), "etch-01.A.1-42");
/// assert!("etch-01.A".parse::<Id>().is_err());
/// # Ok::<(), phalanx_defender::dead_letter::BadId>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id {
    /// The chamber.
    pub chamber: Chamber,
    /// Where the message stood.
    pub position: Position,
}

/// A text that names no dead letter.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} names no dead letter; they are named like etch-01.A.1-42: tool, chamber, generation-sequence")]
pub struct BadId(String);

impl FromStr for Id {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let read = || {
            let mut parts = text.split('.');
            let chamber = Chamber::new(parts.next()?, parts.next()?).ok()?;
            let (generation, sequence) = parts.next()?.split_once('-')?;
            let position =
                Position { generation: generation.parse().ok()?, sequence: Sequence(sequence.parse().ok()?) };
            parts.next().is_none().then_some(Self { chamber, position })
        };
        read().ok_or_else(|| BadId(text.to_owned()))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chamber, position) = (&self.chamber, self.position);
        write!(f, "{}.{}.{}-{}", chamber.tool(), chamber.chamber(), position.generation, position.sequence)
    }
}

impl Id {
    fn subject(&self) -> String {
        format!("dlq.{self}")
    }

    fn of_subject(subject: &str) -> Option<Self> {
        subject.strip_prefix("dlq.")?.parse().ok()
    }
}

/// A message that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Which.
    pub id: Id,
    /// Why.
    pub reason: String,
    /// How often it was tried.
    pub attempts: u64,
    /// The run, where the message says one.
    pub context: String,
    /// When the message was stored, and when it was given up, by the broker's clock.
    pub stored_at: Timestamp,
    /// When it was given up.
    pub died_at: Timestamp,
    /// The message in full.
    pub original: Bytes,
    /// Where the letter stands in the log of dead letters.
    sequence: u64,
}

/// A dead letter, as it is answered.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// `tool.chamber.generation-sequence`.
    id: String,
    tool_id: String,
    chamber_id: String,
    context_id: String,
    reason: String,
    attempts: u64,
    stored_at: String,
    died_at: String,
    /// The message: as JSON where it is, as text where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<Value>,
}

impl DeadLetter {
    fn read(message: &Message) -> Option<Self> {
        let letter: Value = serde_json::from_slice(&message.payload).ok()?;
        let text = |name: &str| letter[name].as_str().unwrap_or_default().to_owned();
        let moment = |micros: u64| {
            i64::try_from(micros).ok().and_then(|us| Timestamp::from_microsecond(us).ok()).unwrap_or_default()
        };
        let original = match letter["originalBase64"].as_str() {
            Some(encoded) => decode(encoded)?,
            None => text("original").into(),
        };
        Some(Self {
            id: Id::of_subject(&message.subject)?,
            reason: text("reason"),
            attempts: letter["attempts"].as_u64().unwrap_or_default(),
            context: text("contextId"),
            stored_at: moment(letter["storedAt"].as_u64().unwrap_or_default()),
            died_at: moment(message.stored_at),
            original,
            sequence: message.sequence,
        })
    }

    /// As it is answered; in full with the message itself.
    pub fn shown(&self, in_full: bool) -> Shown {
        let original = || {
            serde_json::from_slice(&self.original)
                .unwrap_or_else(|_| String::from_utf8_lossy(&self.original).into_owned().into())
        };
        Shown {
            id: self.id.to_string(),
            tool_id: self.id.chamber.tool().to_owned(),
            chamber_id: self.id.chamber.chamber().to_owned(),
            context_id: self.context.clone(),
            reason: self.reason.clone(),
            attempts: self.attempts,
            stored_at: self.stored_at.to_string(),
            died_at: self.died_at.to_string(),
            original: in_full.then(original),
        }
    }
}

fn decode(encoded: &str) -> Option<Bytes> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(encoded).ok().map(Into::into)
}

/// The dead letters of a chamber, or of all, the newest first, at most `limit`; and how many there are.
pub async fn list(
    letters: &dyn Log,
    chamber: Option<&Chamber>,
    limit: usize,
) -> Result<(Vec<DeadLetter>, usize), Error> {
    let subjects = letters.subjects().await?;
    let mut ids: Vec<Id> = subjects
        .keys()
        .filter_map(|subject| Id::of_subject(subject))
        .filter(|id| chamber.is_none_or(|chamber| id.chamber == *chamber))
        .collect();
    ids.sort_by_key(|id| std::cmp::Reverse(id.position));
    let mut found = Vec::new();
    for id in ids.iter().take(limit) {
        found.extend(find(letters, id).await?);
    }
    Ok((found, ids.len()))
}

/// That dead letter, if it is there.
pub async fn find(letters: &dyn Log, id: &Id) -> Result<Option<DeadLetter>, Error> {
    Ok(letters.last(&id.subject()).await?.and_then(|message| DeadLetter::read(&message)))
}

/// Why the message of that place was given up.
pub(crate) async fn reason(
    letters: &dyn Log,
    chamber: &Chamber,
    position: Position,
) -> Result<Option<String>, Error> {
    let id = Id { chamber: chamber.clone(), position };
    Ok(find(letters, &id).await?.map(|letter| letter.reason))
}

/// Sends the message to its chamber again, behind everything that waits there, and puts the letter away. Says where the
/// message stands now.
pub async fn replay(letters: &dyn Log, notifications: &dyn Log, letter: &DeadLetter) -> Result<u64, Error> {
    let subject = names::subjects().subject(&letter.id.chamber.to_string());
    // A fresh id: under its own the broker might take it for the message that died. Asked twice, it is sent once.
    let id = format!("replay:{}", letter.id);
    let appended =
        notifications.append(&subject, letter.original.clone(), AppendCondition::NewId(&id)).await?;
    letters.remove(letter.sequence).await?;
    Ok(appended.sequence)
}

/// Puts the letter away for good; false if somebody else has.
pub async fn remove(letters: &dyn Log, letter: &DeadLetter) -> Result<bool, Error> {
    letters.remove(letter.sequence).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_of_a_dead_letter_is_refused() {
        for bad in [
            "",
            "a",
            "a.b",
            "a.b.1",
            "a.b.1-",
            "a.b.x-1",
            "a.b.1-2.c",
            "a b.c.1-2",
            "a.b.1-99999999999999999999",
        ] {
            assert_eq!(bad.parse::<Id>(), Err(BadId(bad.to_owned())));
        }
    }
}
