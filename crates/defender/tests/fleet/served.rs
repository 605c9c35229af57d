//! A defender with its HTTP API, on a store and a broker that fail when they are told to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_cluster::backend::faults::{self, Faults};
use phalanx_cluster::backend::{Backend, Embedded, Stores};
use phalanx_defender::api::Api;
use phalanx_defender::record::Chamber;
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::worker::{Defender, Options};
use phalanx_defender::{Metrics, Observer};
use phalanx_service::{Server, Token};
use serde_json::Value;
use tempfile::TempDir;

use super::line::{STRATEGY, listed};
use super::moody::Moody;
use phalanx_testkit::wait::until_async;

pub(crate) const TOKEN: &str = "the token of this test";

/// What several defenders share.
pub(crate) struct Site {
    folder: TempDir,
    pub(crate) embedded: Arc<Embedded>,
    pub(crate) store: Arc<dyn ChartStore>,
    pub(crate) stores: Stores,
    pub(crate) chamber: Chamber,
}

/// A defender, what it is asked by, and what troubles it.
pub(crate) struct Served {
    pub(crate) defender: Arc<Defender>,
    pub(crate) api: Api,
    pub(crate) metrics: Metrics,
    pub(crate) moody: Arc<Moody>,
    pub(crate) faults: Faults,
    pub(crate) url: String,
    _server: Server,
}

impl Site {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
        let embedded = Arc::new(Embedded::in_memory().unwrap());
        let chamber = Chamber::new("etch-01", "A").unwrap();
        store.put_metadata(&[listed(&chamber)]).await.unwrap();
        let stores = Stores::open(&*embedded, &Options::default().settings).await.unwrap();
        Self { folder, embedded, store, stores, chamber }
    }

    /// A place for files.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// A defender with that token; it tells its API what it does.
    pub(crate) async fn start(&self, name: &str, token: Token, options: Options) -> Served {
        self.start_told(name, token, options, |api| Arc::new(api.clone())).await
    }

    pub(crate) async fn start_told(
        &self,
        name: &str,
        token: Token,
        options: Options,
        observer: impl FnOnce(&Api) -> Arc<dyn Observer>,
    ) -> Served {
        let metrics = Metrics::default();
        let api = Api::new(name, metrics.clone());
        let server = Server::bind("127.0.0.1:0", api.app(token).router).await.unwrap();
        let moody = Moody::new(self.store.clone());
        let (backend, faults) = faults::wrap(self.embedded.clone() as Arc<dyn Backend>);
        let holder = Arc::new(Holder::new(Strategy::parse(STRATEGY).unwrap()));
        let pod = Some((name.to_owned(), format!("uid-{name}")));
        let options = Options { metrics: metrics.clone(), pod, ..options };
        let settings = options.settings.clone();
        let defender = Defender::start(backend.clone(), moody.clone(), holder, observer(&api), options);
        let defender = Arc::new(defender.await.unwrap());
        api.attach(defender.clone(), &*backend, &settings).await.unwrap();
        let url = server.url();
        Served { defender, api, metrics, moody, faults, url, _server: server }
    }
}

impl Served {
    pub(crate) async fn ready(self) -> Self {
        until_async("it is ready", async || (self.get("/health/ready").await.0 == 200).then_some(())).await;
        self
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, None, "text/plain", "").await
    }

    /// Asks as a client would, whatever the answer.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        kind: &str,
        body: &str,
    ) -> (u16, Value) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(20)))
            .build()
            .into();
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.header("content-type", kind).body(body.to_owned()).unwrap();
        let asked = tokio::task::spawn_blocking(move || {
            let mut response = agent.run(request).unwrap();
            let text = response.body_mut().read_to_string().unwrap_or_default();
            (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
        });
        asked.await.unwrap()
    }

    /// The value of a series, as it is exported; 0 where it is not.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    pub(crate) fn live_in(&self, time: Duration) -> Result<(), String> {
        self.api.live_at(Instant::now() + time)
    }
}

/// Whoever is told by a defender is held by it: they are parted, so that the defender ends as a crash would end it.
impl Drop for Served {
    fn drop(&mut self) {
        self.api.detach();
    }
}
