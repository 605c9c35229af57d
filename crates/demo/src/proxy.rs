//! One address for the whole fleet: a TCP proxy to a live defender, as a load balancer would do it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Delay before the next connection is accepted when there are too many.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// TCP proxy to the first target that answers. Dropping it closes it.
pub(crate) struct FleetProxy {
    address: SocketAddr,
    /// Addresses of the live defenders.
    targets: Arc<Mutex<Vec<SocketAddr>>>,
    accepting: JoinHandle<()>,
}

impl FleetProxy {
    pub(crate) async fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let targets = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let accepting = tokio::spawn({
            let targets = targets.clone();
            async move {
                loop {
                    let Ok((client, _)) = listener.accept().await else {
                        // Most likely there are too many connections; some will end.
                        tokio::time::sleep(ACCEPT_DELAY).await;
                        continue;
                    };
                    let targets = targets.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    tokio::spawn(forward(client, targets));
                }
            }
        });
        Ok(Self { address, targets, accepting })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn set_targets(&self, targets: Vec<SocketAddr>) {
        *self.targets.lock().unwrap_or_else(PoisonError::into_inner) = targets;
    }
}

impl Drop for FleetProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(mut client: TcpStream, targets: Vec<SocketAddr>) {
    for target in targets {
        if let Ok(mut target) = TcpStream::connect(target).await {
            // Either side may close at any time, which closes the other.
            let _ = copy_bidirectional(&mut client, &mut target).await;
            return;
        }
    }
}
