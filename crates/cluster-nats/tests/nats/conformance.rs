//! The facts that hold for every backend, on real nats-servers.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::common::{Wire, connect};
use async_trait::async_trait;
use phalanx_cluster::backend::Backend;
use phalanx_cluster::backend::conformance::Fixture;
use phalanx_cluster_nats::{Config, Nats};
use phalanx_testkit::nats::{Cluster, Server};
use phalanx_testkit::wait::until_async;

/// Removes a stream as an operator would, with a client of its own.
async fn remove_stream(url: &str, name: &str) {
    let (url, name) = (url.to_owned(), name.to_owned());
    let runtime = tokio::runtime::Handle::current();
    let remove = move || {
        runtime.block_on(async {
            let servers: Vec<async_nats::ServerAddr> =
                url.split(',').map(|url| url.parse().unwrap()).collect();
            let js = async_nats::jetstream::new(async_nats::connect(servers).await.unwrap());
            until_async("the stream is removed", async || js.delete_stream(&name).await.ok()).await;
        });
    };
    tokio::task::spawn_blocking(remove).await.unwrap();
}

/// One server, which is killed and started again.
mod one_server {
    use super::*;

    struct One {
        server: Mutex<Server>,
        url: String,
        nats: Nats,
    }

    async fn fixture() -> One {
        let server = Server::start().unwrap();
        let (url, nats) = (server.url(), connect(&server.url()).await);
        One { server: Mutex::new(server), url, nats }
    }

    #[async_trait]
    impl Fixture for One {
        fn backend(&self) -> Arc<dyn Backend> {
            Arc::new(self.nats.clone())
        }

        fn second_connection(&self) -> Option<Arc<dyn Backend>> {
            None
        }

        async fn disconnect(&self) -> bool {
            self.server.lock().unwrap().kill();
            true
        }

        async fn reconnect(&self) {
            self.server.lock().unwrap().restart().unwrap();
        }

        async fn remove_log(&self, name: &str) {
            remove_stream(&self.url, name).await;
        }
    }

    phalanx_cluster::backend_conformance!(fixture());
}

/// One server behind a wire that is cut while others go on writing.
mod a_cut_wire {
    use super::*;

    struct Wired {
        server: Server,
        wire: Wire,
        nats: Nats,
        beside: Nats,
    }

    #[async_trait]
    impl Fixture for Wired {
        fn backend(&self) -> Arc<dyn Backend> {
            Arc::new(self.nats.clone())
        }

        fn second_connection(&self) -> Option<Arc<dyn Backend>> {
            Some(Arc::new(self.beside.clone()))
        }

        async fn disconnect(&self) -> bool {
            self.wire.cut();
            true
        }

        async fn reconnect(&self) {
            self.wire.mend();
        }

        async fn remove_log(&self, name: &str) {
            remove_stream(&self.server.url(), name).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_watch_is_told_what_others_did_meanwhile() {
        let server = Server::start().unwrap();
        let wire = Wire::to(&server.url()).await;
        let (nats, beside) = (connect(&wire.url()).await, connect(&server.url()).await);
        let fixture = Wired { server, wire, nats, beside };
        phalanx_cluster::backend::conformance::kv::a_watch_resumes_without_loss_or_repeat(&fixture).await;
    }
}

/// Three servers, and three replicas of everything.
mod three_servers {
    use super::*;

    struct Three {
        urls: String,
        nats: Nats,
    }

    /// One cluster for all tests of this file: it takes a while to start. It ends with the process.
    fn cluster() -> String {
        static CLUSTER: OnceLock<(Mutex<Cluster>, String)> = OnceLock::new();
        let start = || {
            let cluster = Cluster::start().unwrap();
            let urls = cluster.urls();
            (Mutex::new(cluster), urls)
        };
        CLUSTER.get_or_init(start).1.clone()
    }

    async fn fixture() -> Three {
        let urls = tokio::task::spawn_blocking(cluster).await.unwrap();
        // A cluster that has just started, on a busy machine, may take its time.
        let config = Config { replicas: 3, timeout: Duration::from_secs(10), ..Config::new(urls.clone()) };
        let nats =
            until_async("the cluster takes connections", async || Nats::connect(&config).await.ok()).await;
        Three { urls, nats }
    }

    #[async_trait]
    impl Fixture for Three {
        fn backend(&self) -> Arc<dyn Backend> {
            Arc::new(self.nats.clone())
        }

        fn second_connection(&self) -> Option<Arc<dyn Backend>> {
            None
        }

        async fn disconnect(&self) -> bool {
            false
        }

        async fn reconnect(&self) {}

        async fn remove_log(&self, name: &str) {
            remove_stream(&self.urls, name).await;
        }
    }

    phalanx_cluster::backend_conformance!(fixture());
}
