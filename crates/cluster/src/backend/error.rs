//! What can go wrong with a backend, told apart by what may be done next.

use thiserror::Error;

use crate::core::WriteError;
use crate::core::types::Revision;

/// Why an operation did not succeed. Every kind says whether it may have happened; see [`Error::retry`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The condition did not hold. It did not happen, and will not.
    #[error("{what}: refused, {}", found_text(*.found))]
    Conflict {
        /// What was tried.
        what: String,
        /// The revision that is there instead, 0 for none; absent where the backend does not say.
        found: Option<Revision>,
    },
    /// It did not happen; trying again is safe.
    #[error("{what}: {reason}; it did not happen and may be tried again")]
    Failed {
        /// What was tried.
        what: String,
        /// What stood in the way.
        reason: String,
    },
    /// No answer: it may have happened, or may still happen.
    #[error("{what}: {reason}; it may have happened or may still happen: read before trying again")]
    Unknown {
        /// What was tried.
        what: String,
        /// Why there is no answer.
        reason: String,
    },
    /// The value is larger than any backend takes. It did not happen.
    #[error("{what}: {size} bytes are too many, the limit is {limit}")]
    TooLarge {
        /// What was tried.
        what: String,
        /// The size of the value.
        size: usize,
        /// The largest size that is taken.
        limit: usize,
    },
    /// The bucket or the log itself is not there: somebody removed it. It did not happen.
    #[error("{what}: there is no {name}; it was removed, or never made")]
    Missing {
        /// What was tried.
        what: String,
        /// The bucket or log.
        name: String,
    },
    /// A bucket or log belongs to another group. It did not happen, and no retry helps.
    #[error(
        "{name} belongs to group {owner:?}; this is group {group:?}: use the name of that group, or other names"
    )]
    OtherGroup {
        /// The bucket or log.
        name: String,
        /// The group that it belongs to.
        owner: String,
        /// The group that tried to use it.
        group: String,
    },
    /// A name, a setting or an address that cannot be used. It did not happen, and no retry helps.
    #[error("{what}: {reason}")]
    Invalid {
        /// What was tried.
        what: String,
        /// What is wrong, with the value.
        reason: String,
    },
}

/// What a caller may do after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same again: it did not happen.
    Safe,
    /// Nothing of the same: it did not happen, and would not if tried again.
    Useless,
    /// Read first: it may have happened.
    AfterReading,
}

impl Error {
    /// Whether the same operation may be tried again.
    ///
    /// ```
    /// use phalanx_cluster::backend::{Error, Retry};
    ///
    /// let error = Error::unknown("update of leader", "no answer within 2 s");
    /// assert_eq!(error.retry(), Retry::AfterReading);
    /// ```
    pub fn retry(&self) -> Retry {
        match self {
            Self::Failed { .. } | Self::Missing { .. } => Retry::Safe,
            Self::Unknown { .. } => Retry::AfterReading,
            Self::Conflict { .. }
            | Self::TooLarge { .. }
            | Self::OtherGroup { .. }
            | Self::Invalid { .. } => Retry::Useless,
        }
    }

    /// Whether a condition did not hold.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// An [`Error::Conflict`].
    pub fn conflict(what: impl Into<String>, found: Option<Revision>) -> Self {
        Self::Conflict { what: what.into(), found }
    }

    /// An [`Error::Failed`].
    pub fn failed(what: impl Into<String>, reason: impl ToString) -> Self {
        Self::Failed { what: what.into(), reason: reason.to_string() }
    }

    /// An [`Error::Unknown`].
    pub fn unknown(what: impl Into<String>, reason: impl ToString) -> Self {
        Self::Unknown { what: what.into(), reason: reason.to_string() }
    }

    /// An [`Error::Missing`].
    pub fn missing(what: impl Into<String>, name: impl Into<String>) -> Self {
        Self::Missing { what: what.into(), name: name.into() }
    }

    /// An [`Error::Invalid`].
    pub fn invalid(what: impl Into<String>, reason: impl ToString) -> Self {
        Self::Invalid { what: what.into(), reason: reason.to_string() }
    }
}

/// As the core sees it.
impl From<&Error> for WriteError {
    fn from(error: &Error) -> Self {
        match error {
            Error::Conflict { .. } => Self::Conflict,
            Error::Unknown { .. } => Self::Unknown,
            Error::Failed { .. }
            | Error::TooLarge { .. }
            | Error::Missing { .. }
            | Error::OtherGroup { .. }
            | Error::Invalid { .. } => Self::Failed,
        }
    }
}

fn found_text(found: Option<Revision>) -> String {
    match found {
        None => "something else is there".to_owned(),
        Some(Revision(0)) => "nothing is there".to_owned(),
        Some(Revision(revision)) => format!("revision {revision} is there"),
    }
}
