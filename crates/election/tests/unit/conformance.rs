//! The agent keeps to what every election backend does.

use crate::alone;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use phalanx_cluster::backend::Election;
use phalanx_cluster::backend::conformance::election::ElectionFixture;
use phalanx_election::agent::Agent;
use phalanx_election::backend::AgentElection;
use phalanx_election::client::Client;
use phalanx_election::security::Security;
use tempfile::TempDir;

/// A node alone, and a client of it.
struct Fixture {
    _agent: Agent,
    client: Client,
    _folder: TempDir,
}

async fn fixture() -> Fixture {
    let (agent, folder) = alone::start(&Security::default()).await;
    let client = Client::new(&[agent.grpc_addr().to_string()], &Security::default()).expect("a client");
    Fixture { _agent: agent, client, _folder: folder }
}

#[async_trait]
impl ElectionFixture for Fixture {
    async fn election(&self) -> Arc<dyn Election> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("election-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Arc::new(AgentElection::new(self.client.clone(), name, Duration::from_secs(2)))
    }
}

phalanx_cluster::election_conformance!(fixture());
