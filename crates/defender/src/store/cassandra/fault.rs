//! What an error of the driver means to whoever asked.

use scylla::errors::{DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError};

use crate::store::StoreError;

/// Time-outs, missing hosts, overload: later it may work. What the server understood and does not want: never.
pub(super) fn fault(error: &ExecutionError) -> StoreError {
    let refused = match error {
        ExecutionError::BadQuery(_) => true,
        ExecutionError::PrepareError(error) => prepare_refused(error),
        ExecutionError::LastAttemptError(error) => attempt_refused(error),
        _ => false,
    };
    told(refused, error)
}

pub(super) fn prepare_fault(error: &PrepareError) -> StoreError {
    told(prepare_refused(error), error)
}

/// Of a first connection. Wrong credentials and certificates are told apart from a server that is away, because waiting
/// does not mend them.
pub(super) fn session_fault(error: &NewSessionError) -> StoreError {
    let text = error.to_string();
    let refused = match error {
        NewSessionError::EmptyKnownNodesList
        | NewSessionError::IllegalConfig(_)
        | NewSessionError::UseKeyspaceError(_) => true,
        _ => REFUSALS.iter().any(|sign| text.contains(sign)),
    };
    if refused { StoreError::Refused(text) } else { StoreError::Unavailable(text) }
}

/// The driver gives these as text only.
const REFUSALS: [&str; 5] = [
    "Authentication failed",
    "Authentication is required",
    "Bad credentials",
    "invalid peer certificate",
    "received fatal alert",
];

/// Whether the session has nobody left to ask: a new one finds the servers sooner than this one would.
pub(super) fn is_cut_off(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::ConnectionPoolError(_)
            | ExecutionError::EmptyPlan
            | ExecutionError::PrepareError(PrepareError::ConnectionPoolError(_))
            | ExecutionError::LastAttemptError(RequestAttemptError::BrokenConnectionError(_))
    )
}

fn told(refused: bool, error: &dyn std::fmt::Display) -> StoreError {
    if refused { StoreError::Refused(error.to_string()) } else { StoreError::Unavailable(error.to_string()) }
}

fn prepare_refused(error: &PrepareError) -> bool {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => attempt_refused(first_attempt),
        _ => false,
    }
}

fn attempt_refused(error: &RequestAttemptError) -> bool {
    match error {
        RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_) => true,
        RequestAttemptError::DbError(error, _) => matches!(
            error,
            DbError::SyntaxError
                | DbError::Invalid
                | DbError::AlreadyExists { .. }
                | DbError::FunctionFailure { .. }
                | DbError::ProtocolError
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use scylla::statement::Consistency;

    use super::*;

    fn of(error: DbError) -> StoreError {
        fault(&ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, String::new())))
    }

    #[test]
    fn what_may_pass_is_unavailable_and_what_was_understood_is_refused() {
        let (consistency, required) = (Consistency::LocalQuorum, 2);
        for error in [
            of(DbError::Unavailable { consistency, required, alive: 1 }),
            of(DbError::Overloaded),
            of(DbError::IsBootstrapping),
            of(DbError::ReadTimeout { consistency, required, received: 1, data_present: false }),
            of(DbError::ServerError),
            // Not allowed is nobody's message's fault.
            of(DbError::Unauthorized),
            fault(&ExecutionError::RequestTimeout(Duration::from_secs(1))),
            fault(&ExecutionError::EmptyPlan),
        ] {
            assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        }
        for error in [of(DbError::Invalid), of(DbError::SyntaxError)] {
            assert!(matches!(error, StoreError::Refused(_)), "{error}");
        }
    }
}
