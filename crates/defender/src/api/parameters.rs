//! What requests name, checked.

use jiff::Timestamp;
use phalanx_cluster::backend;
use phalanx_service::ApiError;

use crate::record::Chamber;
use crate::store::StoreError;

/// The chamber that a path names.
pub(super) fn chamber(tool: &str, chamber: &str) -> Result<Chamber, ApiError> {
    Chamber::new(tool, chamber).map_err(|error| ApiError::bad_request(error.to_string()))
}

/// A moment, like `2026-01-01T00:00:00Z`.
pub(super) fn moment(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, ApiError> {
    text.map(|text| {
        text.parse().map_err(|error| {
            ApiError::bad_request(format!(
                "{name} is {text:?}, which is no time like 2026-01-01T00:00:00Z: {error}"
            ))
        })
    })
    .transpose()
}

/// How many of a list are wanted.
pub(super) fn limit(given: Option<usize>, usual: usize, most: usize) -> Result<usize, ApiError> {
    let limit = given.unwrap_or(usual);
    match (1..=most).contains(&limit) {
        true => Ok(limit),
        false => Err(ApiError::bad_request(format!("limit is {limit}; allowed are 1 to {most}"))),
    }
}

/// What the broker says, to a client.
pub(super) fn away(error: backend::Error) -> ApiError {
    ApiError::unavailable(error.to_string())
}

/// What the store says, to a client.
pub(super) fn of_store(error: StoreError) -> ApiError {
    match error {
        StoreError::Unavailable(_) => ApiError::unavailable(error.to_string()),
        StoreError::Refused(_) => ApiError::bad_request(error.to_string()),
    }
}
