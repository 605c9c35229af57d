//! What the tests here share.
#![allow(dead_code, reason = "each test file uses a part of it")]

use phalanx_cluster::backend::Error;
use phalanx_cluster_nats::{Config, Nats};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) async fn connect(url: &str) -> Nats {
    Nats::connect(&Config::new(url)).await.expect("the server takes connections")
}

/// The text of an error that must be [`Error::Invalid`].
#[track_caller]
pub(crate) fn invalid<T>(result: Result<T, Error>) -> String {
    match result {
        Err(error @ Error::Invalid { .. }) => error.to_string(),
        Err(error) => panic!("another error: {error:?}"),
        Ok(_) => panic!("no error"),
    }
}

/// A wire between a client and a server that can be cut while the server lives on.
pub(crate) struct Wire {
    port: u16,
    cut: watch::Sender<bool>,
}

impl Wire {
    pub(crate) async fn to(url: &str) -> Self {
        let server = url.trim_start_matches("nats://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its own address").port();
        let cut = watch::Sender::new(false);
        let is_cut = cut.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server.clone(), is_cut.clone()));
            }
        });
        Self { port, cut }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(crate) fn mend(&self) {
        self.cut.send_replace(false);
    }
}

async fn carry(mut client: TcpStream, server: String, mut is_cut: watch::Receiver<bool>) {
    if *is_cut.borrow() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = is_cut.wait_for(|cut| *cut) => {}
    }
}
