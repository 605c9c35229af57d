//! A node that is the whole set.

#![allow(dead_code, reason = "each test file is a crate of its own and uses its share")]

use std::sync::Arc;

use phalanx_election::agent::{Agent, Config};
use phalanx_election::node;
use phalanx_election::security::Security;
use tempfile::TempDir;

/// How it is set up, on free ports.
pub(crate) fn config(folder: &TempDir, security: &Security) -> Config {
    Config {
        grpc_addr: "127.0.0.1:0".to_owned(),
        http_addr: "127.0.0.1:0".to_owned(),
        node: node::Config {
            id: 1,
            data_dir: folder.path().to_owned(),
            peers: [].into(),
            join: Vec::new(),
            advertise: String::new(),
            security: security.clone(),
            log: Arc::new(|_| {}),
        },
    }
}

/// Runs one, with what it remembers in the folder.
pub(crate) async fn start(security: &Security) -> (Agent, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = Agent::start(config(&folder, security)).await.expect("an agent");
    (agent, folder)
}
