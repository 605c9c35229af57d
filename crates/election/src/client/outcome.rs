//! What an answer, or its absence, means for whoever asked.

use thiserror::Error;
use tonic::{Code, Status};

use crate::security::explain;
use crate::server::{NOT_DONE, OUTCOME};

/// Why a request did not succeed. Every kind says whether it may have been carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The agent answered: this leadership has ended, or never was. Nothing was changed.
    #[error("{0}")]
    Ended(String),
    /// The agent answered: this cannot be asked for. Nothing was changed, and asking again does not help.
    #[error("the election agent refuses: {0}")]
    Refused(String),
    /// Nothing was done. Asking again is safe.
    #[error("no election agent answers: {0}; nothing was done")]
    NotDone(String),
    /// No answer: it may have been done, or may be yet.
    #[error("no election agent answered in time: {0}; it may have been done, or may be yet")]
    Unknown(String),
}

impl Error {
    /// Why, alone.
    pub fn reason(&self) -> &str {
        match self {
            Self::Ended(reason) | Self::Refused(reason) | Self::NotDone(reason) | Self::Unknown(reason) => {
                reason
            }
        }
    }
}

/// What one node's answer means.
pub(super) fn of(address: &str, status: &Status) -> Error {
    let text = format!("{address}: {}", explain(status));
    match status.code() {
        Code::FailedPrecondition | Code::NotFound => Error::Ended(status.message().to_owned()),
        Code::InvalidArgument
        | Code::Unauthenticated
        | Code::PermissionDenied
        | Code::Unimplemented
        | Code::ResourceExhausted => Error::Refused(text),
        Code::Unavailable if says_not_done(status) || was_never_sent(status) => Error::NotDone(text),
        _ => Error::Unknown(text),
    }
}

fn says_not_done(status: &Status) -> bool {
    status.metadata().get(OUTCOME).is_some_and(|outcome| outcome == NOT_DONE)
}

/// Nobody was reached who could have done anything.
fn was_never_sent(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_does_not_say_that_nothing_was_done_leaves_it_open() {
        let kind = |status: &Status| match of("a", status) {
            Error::Ended(_) => "ended",
            Error::Refused(_) => "refused",
            Error::NotDone(_) => "not done",
            Error::Unknown(_) => "unknown",
        };
        let mut certain = Status::unavailable("no leader");
        certain.metadata_mut().insert(OUTCOME, tonic::metadata::MetadataValue::from_static(NOT_DONE));
        assert_eq!(kind(&certain), "not done");
        for open in [
            Status::unavailable("the connection broke"),
            Status::deadline_exceeded(""),
            Status::cancelled(""),
            Status::internal(""),
            Status::unknown(""),
        ] {
            assert_eq!(kind(&open), "unknown", "{open}");
        }
        assert_eq!(kind(&Status::failed_precondition("another leads")), "ended");
        assert_eq!(kind(&Status::invalid_argument("a bad name")), "refused");
    }
}
