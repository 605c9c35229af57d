//! A node with everything that it listens on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use phalanx_service::{BindError, Server, Shutdown, ShutdownGuard};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::metrics::Metrics;
use crate::node::{self, Node};
use crate::{http, security, server};

/// How long requests that run may go on after the stop.
const GRACE: Duration = Duration::from_secs(1);

/// What an agent is told.
pub struct Config {
    /// Where it listens for clients and for other nodes, such as `127.0.0.1:9090`; port 0 is any free one.
    pub grpc_addr: String,
    /// Where it listens for probes and people.
    pub http_addr: String,
    /// What the node is told. An empty `advertise` is where it listens.
    pub node: node::Config,
}

/// Why an agent does not start, or has ended.
#[derive(Debug, Error)]
pub enum Error {
    /// The node cannot start or go on.
    #[error(transparent)]
    Node(#[from] node::Error),
    /// The settings cannot be used.
    #[error(transparent)]
    Security(#[from] security::Error),
    /// The HTTP address is taken.
    #[error(transparent)]
    Http(#[from] BindError),
    /// The gRPC address is taken.
    #[error(
        "cannot listen on {address}: {source}; set GRPC_ADDR to an address of this machine with a free port"
    )]
    Grpc {
        /// Which.
        address: String,
        /// Why.
        source: std::io::Error,
    },
}

/// A running agent. Call [`Agent::stop`] to end it in order.
pub struct Agent {
    node: Node,
    grpc: SocketAddr,
    http: Server,
    shutdown: ShutdownGuard,
    serving: JoinHandle<Result<(), security::Error>>,
}

impl Agent {
    /// Listens, and takes part as soon as that is possible.
    pub fn start(config: Config) -> BoxFuture<'static, Result<Self, Error>> {
        Box::pin(async move {
            let Config { grpc_addr, http_addr, mut node } = config;
            let failed = |source| Error::Grpc { address: grpc_addr.clone(), source };
            // What is wrong with certificates is said before anything begins.
            node.security.server()?;
            let listener = TcpListener::bind(&grpc_addr).await.map_err(failed)?;
            let grpc = listener.local_addr().map_err(failed)?;
            if node.advertise.is_empty() {
                node.advertise = node.peers.get(&node.id).cloned().unwrap_or_else(|| grpc.to_string());
            }
            let metrics = Arc::new(Metrics::new());
            let node = Node::start(node, metrics.clone()).await?;
            let http = Server::bind(&http_addr, http::app(node.clone(), metrics).router).await?;
            let shutdown = Shutdown::default();
            let serving = tokio::spawn(server::serve(node.clone(), listener, shutdown.clone()));
            Ok(Self { node, grpc, http, shutdown: shutdown.guard(), serving })
        })
    }

    /// Where it listens for gRPC.
    pub fn grpc_addr(&self) -> SocketAddr {
        self.grpc
    }

    /// Where it listens for HTTP.
    pub fn http_url(&self) -> String {
        self.http.url()
    }

    /// The node inside.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Waits until it cannot go on, and says why.
    pub async fn ended(&self) -> Error {
        self.node.ended().await.into()
    }

    /// Takes nothing new, lets what runs end, and stops.
    pub fn stop(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Self { node, http, shutdown, mut serving, .. } = self;
            drop(shutdown);
            if tokio::time::timeout(GRACE, &mut serving).await.is_err() {
                serving.abort();
            }
            http.stop().await;
            node.stop().await;
        })
    }
}
