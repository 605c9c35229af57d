//! What every HTTP service of Phalanx shares, so that they answer alike: health and readiness, metrics, OpenAPI, the
//! bearer token, error bodies, limits, a stream of events, profiles, requests to stop, and a graceful stop.
//!
//! A service describes its own routes with [`utoipa`] and hands them to [`Kit`]; everything else is there.
//!
//! ```no_run
//! use std::sync::Arc;
//! use phalanx_service::{Kit, Probes, Readiness, Server, Token};
//! use utoipa_axum::{router::OpenApiRouter, routes};
//!
//! struct Nothing;
//!
//! #[async_trait::async_trait]
//! impl Probes for Nothing {
//!     fn live(&self) -> Result<(), String> { Ok(()) }
//!     async fn ready(&self) -> Readiness { Readiness::ready(serde_json::json!({})) }
//!     fn metrics(&self) -> String { String::new() }
//! }
//!
//! /// Says hello.
//! #[utoipa::path(get, path = "/api/v1/hello", responses((status = 200, body = String)))]
//! async fn hello() -> &'static str { "hello" }
//!
//! # #[tokio::main] async fn main() -> Result<(), phalanx_service::BindError> {
//! let own = OpenApiRouter::new().routes(routes!(hello));
//! let app = Kit::new("Greeter", "1.0", Arc::new(Nothing), Token::none()).build(own);
//! let server = Server::bind("127.0.0.1:8080", app.router).await?;
//! println!("listening on {}", server.url());
//! server.stop().await;
//! # Ok(()) }
//! ```

mod error;
mod events;
mod kit;
mod pprof_format;
mod probes;
mod profile;
mod server;
mod shutdown;
mod token;
mod watchdog;

pub use error::{ApiError, ErrorBody};
pub use events::{Event, Events, KEPT};
pub use kit::{App, Kit};
pub use probes::{Probes, Readiness};
pub use server::{BindError, Server};
pub use shutdown::{ListenError, Shutdown, ShutdownGuard};
pub use token::Token;
pub use watchdog::{Beat, PATIENCE, Watchdog};
