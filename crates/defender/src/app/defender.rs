//! A defender from its start to its graceful shutdown.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use phalanx_service::{Server, Shutdown, Token};

use super::retry::retry_until_available;
use super::{AppError, ConnectError, Connections, Coordination, DataFolder, Log, OpenConnections};
use crate::api::Api;
use crate::strategy::{Holder, Strategy};
use crate::worker::{Defender, Options};

/// Limit of the shutdown: a drain of 25 s, and the steps after it.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Settings of a defender application.
#[derive(Clone)]
pub struct Config {
    /// Locations of the stores.
    pub connections: Connections,
    /// Settings of the worker; its strategy file is [`Config::strategy_file`].
    pub options: Options,
    /// Address of the HTTP API.
    pub http_addr: String,
    /// Write token; an embedded defender creates one if there is none.
    pub token: Option<String>,
    /// File of the strategy.
    pub strategy_file: PathBuf,
    /// Receiver of lines for operators.
    pub log: Log,
}

/// Runs a defender until a stop is requested.
///
/// It listens before its servers answer, so that `/health/ready` can report what it waits for.
pub fn run(mut config: Config, shutdown: Shutdown) -> BoxFuture<'static, Result<(), AppError>> {
    Box::pin(async move {
        let strategy = read_strategy(&config.strategy_file)?;
        config.options.strategy_file = Some(config.strategy_file.clone());
        let folder = match &config.connections.coordination {
            Coordination::Embedded(folder) => Some(DataFolder::open(folder)?),
            #[cfg(feature = "nats")]
            Coordination::Nats(_) => None,
        };
        let token = match (&config.token, &folder) {
            (Some(token), _) => Token::new(token),
            (None, Some(folder)) => Token::new(&folder.ensure_token()?),
            (None, None) => Token::none(),
        };
        let (pod_name, _) = config.options.pod.clone().unwrap_or_default();
        let api = Api::new(&pod_name, config.options.metrics.clone());
        let server = Server::bind(&config.http_addr, api.app(token).router).await?;
        (config.log)(&format!("listening on {}", server.url()));
        let app = App { config, strategy, folder, api, url: server.url() };
        let started = tokio::select! {
            () = shutdown.requested() => None,
            started = app.start() => Some(started?),
        };
        match started {
            Some((open, defender)) => app.serve(open, defender, server, &shutdown).await?,
            None => server.stop().await,
        }
        if let Some(folder) = &app.folder {
            folder.remove_address();
        }
        Ok(())
    })
}

/// Reads the strategy file.
fn read_strategy(path: &Path) -> Result<Arc<Holder>, AppError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| AppError::ReadStrategy { path: path.to_owned(), source })?;
    let strategy =
        Strategy::parse(&text).map_err(|error| AppError::Strategy { path: path.to_owned(), error })?;
    Ok(Arc::new(Holder::new(strategy)))
}

/// A defender application that listens.
struct App {
    config: Config,
    strategy: Arc<Holder>,
    /// The data folder of an embedded defender.
    folder: Option<DataFolder>,
    api: Api,
    url: String,
}

impl App {
    /// Opens the stores and starts the worker, and retries while a server is unavailable.
    async fn start(&self) -> Result<(OpenConnections, Defender), ConnectError> {
        let on_wait = |error: &str| {
            // The address lets commands ask what the defender waits for; without the file they need --url.
            let _ = self.write_address();
            self.config.options.metrics.cluster().initialization_failed();
            self.api.waits_for(error);
        };
        retry_until_available(&self.config.log, || self.attempt(), on_wait).await
    }

    async fn attempt(&self) -> Result<(OpenConnections, Defender), ConnectError> {
        let open = OpenConnections::open(&self.config.connections).await?;
        let (backend, store) = (open.backend.backend(), open.charts.store());
        let (observer, options) = (Arc::new(self.api.clone()), self.config.options.clone());
        let defender = Defender::start(backend, store, self.strategy.clone(), observer, options).await?;
        Ok((open, defender))
    }

    /// Stores the address in the data folder. Only a defender that has the lock of the folder, or waits for a server, may
    /// do that: another one may use the folder.
    fn write_address(&self) -> Result<(), AppError> {
        self.folder.as_ref().map_or(Ok(()), |folder| folder.write_address(&self.url))
    }

    /// Serves until a stop is requested, and then shuts down.
    async fn serve(
        &self,
        open: OpenConnections,
        defender: Defender,
        server: Server,
        shutdown: &Shutdown,
    ) -> Result<(), AppError> {
        let defender = Arc::new(defender);
        let attached =
            self.api.attach(defender.clone(), &*open.backend.backend(), &self.config.options.settings).await;
        attached.map_err(ConnectError::from)?;
        self.write_address()?;
        shutdown.requested().await;
        let log = &self.config.log;
        log("leaving");
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, defender.shutdown()).await.is_err() {
            let limit = SHUTDOWN_TIMEOUT.as_secs();
            log(&format!("the farewell took longer than {limit} s; leaving without it"));
        }
        server.stop().await;
        self.api.detach();
        open.close().await;
        Ok(())
    }
}
