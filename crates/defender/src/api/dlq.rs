//! Dead letters: messages that were given up.

use axum::Json;
use axum::extract::{Path, Query, State};
use phalanx_service::{ApiError, ErrorBody};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::parameters::{away, chamber, limit};
use super::{Api, Attached};
use crate::dead_letter::{self, DeadLetter, Id, Shown};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only of this tool; needs a chamber.
    tool: Option<String>,
    /// Only of this chamber; needs a tool.
    chamber: Option<String>,
    /// How many, 1 to 1000; 100 by default.
    limit: Option<usize>,
}

/// Dead letters, the newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeadLetters {
    dead_letters: Vec<Shown>,
    /// How many there are in all.
    total: usize,
}

/// The messages that were given up, the newest first.
#[utoipa::path(
    get,
    path = "/api/v1/dlq",
    tag = "dead letters",
    params(Which),
    responses((status = 200, body = DeadLetters), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody))
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Query(which): Query<Which>,
) -> Result<Json<DeadLetters>, ApiError> {
    let of = match (&which.tool, &which.chamber) {
        (Some(tool), Some(name)) => Some(chamber(tool, name)?),
        (None, None) => None,
        _ => return Err(ApiError::bad_request("name tool and chamber, or neither")),
    };
    let limit = limit(which.limit, 100, 1_000)?;
    let attached = api.attached()?;
    let letters = dead_letter::list(&*attached.stores.dead_letters, of.as_ref(), limit).await;
    let (letters, total) = letters.map_err(away)?;
    let dead_letters = letters.iter().map(|letter| letter.shown(false)).collect();
    Ok(Json(DeadLetters { dead_letters, total }))
}

/// A message that was given up, in full.
#[utoipa::path(
    get,
    path = "/api/v1/dlq/{letter}",
    tag = "dead letters",
    params(("letter" = String, Path, description = "`tool.chamber.generation-sequence`, as the list says")),
    responses(
        (status = 200, body = Shown),
        (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn show(
    State(api): State<Api>,
    Path(letter): Path<String>,
) -> Result<Json<Shown>, ApiError> {
    Ok(Json(find(&*api.attached()?, &letter).await?.shown(true)))
}

/// Sends the message to its chamber again, behind everything that waits there, and puts the letter away.
#[utoipa::path(
    post,
    path = "/api/v1/dlq/{letter}/replay",
    tag = "dead letters",
    params(("letter" = String, Path)),
    security(("token" = [])),
    responses(
        (status = 202, body = Value),
        (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn replay(
    State(api): State<Api>,
    Path(letter): Path<String>,
) -> Result<(axum::http::StatusCode, Json<Value>), ApiError> {
    let attached = api.attached()?;
    let letter = find(&attached, &letter).await?;
    let stores = &attached.stores;
    let sequence = dead_letter::replay(&*stores.dead_letters, &*stores.log, &letter).await;
    let answer = json!({ "id": letter.id.to_string(), "sequence": sequence.map_err(away)? });
    Ok((axum::http::StatusCode::ACCEPTED, Json(answer)))
}

/// Puts the letter away for good.
#[utoipa::path(
    delete,
    path = "/api/v1/dlq/{letter}",
    tag = "dead letters",
    params(("letter" = String, Path)),
    security(("token" = [])),
    responses(
        (status = 200, body = Value),
        (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody),
    )
)]
pub(crate) async fn remove(
    State(api): State<Api>,
    Path(letter): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let attached = api.attached()?;
    let letter = find(&attached, &letter).await?;
    let removed = dead_letter::remove(&*attached.stores.dead_letters, &letter).await.map_err(away)?;
    Ok(Json(json!({ "id": letter.id.to_string(), "dropped": removed })))
}

async fn find(attached: &Attached, letter: &str) -> Result<DeadLetter, ApiError> {
    let id: Id =
        letter.parse().map_err(|error: dead_letter::BadId| ApiError::bad_request(error.to_string()))?;
    let found = dead_letter::find(&*attached.stores.dead_letters, &id).await.map_err(away)?;
    found.ok_or_else(|| ApiError::not_found(format!("there is no dead letter {id}; /api/v1/dlq lists them")))
}
