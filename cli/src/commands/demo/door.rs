//! One address for the whole fleet: whoever asks there is led to a defender that runs, as a load balancer would do it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How long nobody is let in when there are too many.
const FULL: Duration = Duration::from_millis(100);

/// Open until it is dropped.
pub(super) struct Door {
    address: SocketAddr,
    /// Where it leads to: the first of these that answers.
    behind: Arc<Mutex<Vec<SocketAddr>>>,
    opening: JoinHandle<()>,
}

impl Door {
    pub(super) async fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let behind = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let opening = tokio::spawn({
            let behind = behind.clone();
            async move {
                loop {
                    let Ok((guest, _)) = listener.accept().await else {
                        // Too many connections, most likely: some will end.
                        tokio::time::sleep(FULL).await;
                        continue;
                    };
                    let hosts = behind.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    tokio::spawn(lead(guest, hosts));
                }
            }
        });
        Ok(Self { address, behind, opening })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn leads_to(&self, hosts: Vec<SocketAddr>) {
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.opening.abort();
    }
}

async fn lead(mut guest: TcpStream, hosts: Vec<SocketAddr>) {
    for host in hosts {
        if let Ok(mut host) = TcpStream::connect(host).await {
            // Either may go at any time: then the other is told by the end of the connection.
            let _ = copy_bidirectional(&mut guest, &mut host).await;
            return;
        }
    }
}
