//! Steering: start, pause, resume, stop.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use phalanx_etl::engine::{Answer, Command, Refusal};
use phalanx_service::{ApiError, ErrorBody};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;

/// How long a provider is waited for: it takes commands between two batches.
const PATIENCE: Duration = Duration::from_secs(5);
/// Stands for every provider.
const ALL: &str = "all";

/// What came of a command.
#[derive(Default, Serialize, ToSchema)]
pub(super) struct Done {
    /// Who took it; for a start, who runs now or as soon as what it needs has completed.
    accepted: Vec<Accepted>,
    /// Who refused it, and why.
    refused: Vec<Refused>,
    /// Who is busy and takes it after the present batch.
    pending: Vec<String>,
}

/// A provider that took a command.
#[derive(Serialize, ToSchema)]
pub(super) struct Accepted {
    provider: String,
    /// The provider that needs it, where it was not asked for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    needed_by: Option<String>,
}

/// A provider that refused a command.
#[derive(Serialize, ToSchema)]
pub(super) struct Refused {
    provider: String,
    why: String,
}

impl Api {
    async fn command(&self, id: &str, command: Command) -> Result<Response, ApiError> {
        if id == ALL {
            return self.command_all(command).await;
        }
        self.known(id)?;
        let mut done = Done::default();
        self.one(id, command, &mut done).await?;
        match done.refused.pop() {
            Some(refused) => Err(ApiError::conflict(format!("{id}: {}", refused.why))),
            None => Ok(answer(done)),
        }
    }

    async fn command_all(&self, command: Command) -> Result<Response, ApiError> {
        let mut done = Done::default();
        if command == Command::Start {
            let receiver = self.engine.start(self.ids.clone());
            self.heard(ALL, receiver, &mut done).await?;
        } else {
            // Dependents first: a stop must not let one of them begin.
            for id in self.ids.iter().rev() {
                self.one(id, command, &mut done).await?;
            }
        }
        Ok(answer(done))
    }

    async fn one(&self, id: &str, command: Command, done: &mut Done) -> Result<(), ApiError> {
        let receiver = self.engine.ask(id, command);
        self.heard(id, receiver, done).await
    }

    async fn heard(
        &self,
        id: &str,
        receiver: std::sync::mpsc::Receiver<Answer>,
        done: &mut Done,
    ) -> Result<(), ApiError> {
        let waited = tokio::task::spawn_blocking(move || receiver.recv_timeout(PATIENCE)).await;
        let gone = || ApiError::unavailable("the engine has ended; restart the service");
        match waited.map_err(|_| gone())? {
            Ok(Ok(needed)) if needed.is_empty() && id != ALL => {
                done.accepted.push(Accepted { provider: id.to_owned(), needed_by: None });
            }
            Ok(Ok(needed)) => done
                .accepted
                .extend(needed.into_iter().map(|one| Accepted { provider: one.id, needed_by: one.by })),
            Ok(Err(Refusal::Registry(error))) => return Err(ApiError::not_found(error.to_string())),
            Ok(Err(Refusal::State(why))) => {
                done.refused.push(Refused { provider: id.to_owned(), why: why.to_string() });
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => done.pending.push(id.to_owned()),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Err(gone()),
        }
        Ok(())
    }
}

/// 200 when everybody has answered, 202 while somebody is busy.
fn answer(done: Done) -> Response {
    let status = if done.pending.is_empty() { StatusCode::OK } else { StatusCode::ACCEPTED };
    (status, Json(done)).into_response()
}

macro_rules! command {
    ($name:ident, $path:literal, $command:ident, $doc:literal) => {
        #[doc = $doc]
        #[utoipa::path(
            post,
            path = $path,
            tag = "control",
            params(("id" = String, Path, description = "a provider such as cve, or all")),
            security(("token" = [])),
            responses(
                (status = 200, description = "everybody has answered", body = Done),
                (status = 202, description = "somebody is busy and takes it after the present batch", body = Done),
                (status = 401, body = ErrorBody),
                (status = 403, description = "no token is set here", body = ErrorBody),
                (status = 404, body = ErrorBody),
                (status = 409, description = "it makes no sense in the provider's state", body = ErrorBody),
            )
        )]
        pub(super) async fn $name(
            State(api): State<Api>,
            Path(id): Path<String>,
        ) -> Result<Response, ApiError> {
            api.command(&id, Command::$command).await
        }
    };
}

command!(
    start,
    "/api/v1/etl/providers/{id}/start",
    Start,
    "Begins a run, and one of whatever it needs that never completed."
);
command!(pause, "/api/v1/etl/providers/{id}/pause", Pause, "Pauses a run until somebody resumes it.");
command!(resume, "/api/v1/etl/providers/{id}/resume", Resume, "Lets a paused run go on.");
command!(stop, "/api/v1/etl/providers/{id}/stop", Stop, "Ends a run; the next one goes on where it stopped.");
