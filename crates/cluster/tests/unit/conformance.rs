//! The facts that hold for every backend, on the backends of this crate.

use std::sync::Arc;

use async_trait::async_trait;
use phalanx_cluster::backend::conformance::Fixture;
use phalanx_cluster::backend::faults::{self, Faults};
use phalanx_cluster::backend::{Backend, Embedded};
use tempfile::TempDir;

/// SQLite, which cannot be cut off from its data.
struct Plain {
    embedded: Embedded,
    _folder: Option<TempDir>,
}

#[async_trait]
impl Fixture for Plain {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.embedded.clone())
    }

    fn second_connection(&self) -> Option<Arc<dyn Backend>> {
        None
    }

    async fn disconnect(&self) -> bool {
        false
    }

    async fn reconnect(&self) {}

    async fn remove_log(&self, name: &str) {
        self.embedded.remove_log(name).await.unwrap();
    }
}

/// The decorator with no fault planned, and a connection that can be cut.
struct Decorated {
    inner: Embedded,
    backend: Arc<dyn Backend>,
    faults: Faults,
}

#[async_trait]
impl Fixture for Decorated {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    fn second_connection(&self) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(self.inner.clone()))
    }

    async fn disconnect(&self) -> bool {
        self.faults.disconnect();
        true
    }

    async fn reconnect(&self) {
        self.faults.reconnect();
    }

    async fn remove_log(&self, name: &str) {
        self.inner.remove_log(name).await.unwrap();
    }
}

mod embedded_in_memory {
    use super::*;

    async fn fixture() -> Plain {
        Plain { embedded: Embedded::in_memory().unwrap(), _folder: None }
    }

    phalanx_cluster::backend_conformance!(fixture());
}

mod embedded_in_a_file {
    use super::*;

    async fn fixture() -> Plain {
        let folder = tempfile::tempdir().unwrap();
        Plain { embedded: Embedded::open(folder.path()).unwrap(), _folder: Some(folder) }
    }

    phalanx_cluster::backend_conformance!(fixture());
}

mod faults_that_do_nothing {
    use super::*;

    async fn fixture() -> Decorated {
        let inner = Embedded::in_memory().unwrap();
        let (backend, faults) = faults::wrap(Arc::new(inner.clone()));
        Decorated { inner, backend, faults }
    }

    phalanx_cluster::backend_conformance!(fixture());
}
