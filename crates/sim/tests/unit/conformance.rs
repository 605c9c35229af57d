//! The facts that hold for every backend, on the simulated broker.

use std::sync::Arc;

use async_trait::async_trait;
use phalanx_cluster::backend::Backend;
use phalanx_cluster::backend::conformance::Fixture;
use phalanx_cluster::backend::faults::{self, Faults};
use phalanx_sim::Direct;

/// The simulated broker, with a connection that can be cut.
struct Simulated {
    server: Direct,
    backend: Arc<dyn Backend>,
    faults: Faults,
}

impl Simulated {
    fn new() -> Self {
        let server = Direct::default();
        let (backend, faults) = faults::wrap(Arc::new(server.backend()));
        Self { server, backend, faults }
    }
}

#[async_trait]
impl Fixture for Simulated {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    fn second_connection(&self) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(self.server.backend()))
    }

    async fn disconnect(&self) -> bool {
        self.faults.disconnect();
        true
    }

    async fn reconnect(&self) {
        self.faults.reconnect();
    }

    async fn remove_log(&self, name: &str) {
        self.server.remove_log(name);
    }
}

phalanx_cluster::backend_conformance! { async { Simulated::new() } }
