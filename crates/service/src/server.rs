//! Listening, and stopping gracefully.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use futures_util::future::BoxFuture;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::Shutdown;

/// How long requests that run may go on after the stop.
const GRACE: Duration = Duration::from_secs(2);

/// The address cannot be listened on.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {source}; set HTTP_ADDR to an address of this machine with a free port")]
pub struct BindError {
    address: String,
    source: std::io::Error,
}

/// A service that listens. Dropped, it stops at once.
pub struct Server {
    address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens on an address such as `127.0.0.1:8080`; port 0 is any free one.
    pub fn bind(address: &str, router: Router) -> BoxFuture<'_, Result<Self, BindError>> {
        Box::pin(async move {
            let failed = |source| BindError { address: address.to_owned(), source };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let local = listener.local_addr().map_err(failed)?;
            let shutdown = Shutdown::default();
            let until = {
                let shutdown = shutdown.clone();
                async move { shutdown.requested().await }
            };
            // Accepting goes on whatever a single connection does: it ends only when it is told to.
            let task = tokio::spawn(async move {
                drop(axum::serve(listener, router).with_graceful_shutdown(until).await);
            });
            Ok(Self { address: local, shutdown, task })
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes nothing new, and gives what runs two seconds to end: a stream of events never would.
    pub fn stop(mut self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.shutdown.request();
            let _ = tokio::time::timeout(GRACE, &mut self.task).await;
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
