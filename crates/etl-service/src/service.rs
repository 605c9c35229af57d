//! A service from its start to its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use phalanx_etl::core::timetable::{Plan, Timetable};
use phalanx_etl::engine::{self, Engine, Handle, Options};
use phalanx_etl::store;
use phalanx_service::{BindError, Events, Probes, Readiness, Server, Token, Watchdog};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::api::{self, Api};
use crate::keeper::{self, Feeds, Keeper};
use crate::metrics::Metrics;
use crate::store::Readers;

/// How often the engine's loop is asked whether it still turns.
const PULSE: Duration = Duration::from_secs(2);

/// Where lines for people go; those that need somebody begin with `error: `.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What a service is told.
pub struct Config {
    /// What its engine is told.
    pub options: Options,
    /// When which feed is read; others as [`default_plan`](crate::default_plan) says.
    pub plans: BTreeMap<String, Plan>,
    /// Where to listen.
    pub http_addr: String,
    /// What steering needs.
    pub token: Token,
    /// What jitter is made from.
    pub seed: u64,
    /// Where lines for people go.
    pub log: Log,
}

/// Why a service does not start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The address is taken.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The engine's thread does not start or is gone.
    #[error("the engine is gone: {0}")]
    Gone(String),
}

/// Number of progress reports that may wait for the keeper; the engine waits while there are more.
const MAX_QUEUED_PROGRESS: usize = 1024;

/// A service that runs. Call [`Service::stop`] to end it in order.
pub struct Service {
    server: Server,
    engine: Handle,
    ended: oneshot::Receiver<Result<(), engine::Error>>,
    keeper: tokio::task::JoinHandle<()>,
}

impl Service {
    /// Starts the engine, lets runs that were under way go on, and listens.
    pub fn start(config: Config) -> BoxFuture<'static, Result<Self, Error>> {
        Box::pin(async move {
            let Config { mut options, plans, http_addr, token, seed, log } = config;
            let metrics = Arc::new(Metrics::new());
            let watched = Arc::clone(&metrics);
            options.on_fetch =
                Some(Arc::new(move |provider, status, took| watched.fetched(provider, status, took)));
            let readers = Readers::new(options.db.clone());
            let dependencies: BTreeMap<String, Vec<String>> =
                options.providers.iter().map(|one| (one.id.clone(), one.dependencies.clone())).collect();
            let defaults: BTreeMap<String, Plan> =
                options.providers.iter().map(|one| (one.id.clone(), keeper::default_plan(one))).collect();
            let engine = Engine::new(options)?;
            let ids = engine.ids().to_vec();
            metrics.begin(&ids);
            let handle = engine.handle();
            let (to_keeper, progress) = mpsc::channel(MAX_QUEUED_PROGRESS);
            let (mut ended, pulse) = (serve(engine, to_keeper)?, Arc::new(handle.clone()));
            // The engine's first answer says that the store is open and locked; until then its end says why not.
            let ready = tokio::task::spawn_blocking(move || pulse.start(Vec::new()).recv());
            if ready.await.is_ok_and(|answer| answer.is_err()) {
                return Err(match (&mut ended).await {
                    Ok(Err(error)) => error.into(),
                    _ => Error::Gone("it ended at once".to_owned()),
                });
            }
            let (pasts, seen) = readers.read_here(|reader| Ok((reader.pasts()?, keeper::seen(reader)?)))?;
            let feeds = ids.iter().map(|id| {
                let plan = plans.get(id).unwrap_or(&defaults[id]).clone();
                (id.clone(), plan, pasts.get(id).copied().unwrap_or_default())
            });
            let now = keeper::now();
            let feeds = Feeds::new(Timetable::new(now, seed, feeds));
            let events = Events::new(u64::try_from(now.as_millis()).unwrap_or_default());
            let watchdog = Watchdog::default();
            watch(&handle, &watchdog)?;
            let keeper = Keeper {
                feeds: feeds.clone(),
                metrics: Arc::clone(&metrics),
                events: events.clone(),
                readers: readers.clone(),
                engine: handle.clone(),
                log,
                beat: watchdog.watch("keeper"),
                counts: BTreeMap::new(),
                seen,
            };
            let api =
                Api { ids, dependencies, feeds, events, readers, engine: handle.clone(), metrics, watchdog };
            let server = match Server::bind(&http_addr, api::app(api, token).router).await {
                Ok(server) => server,
                Err(error) => {
                    handle.shut_down();
                    let _ = ended.await;
                    return Err(error.into());
                }
            };
            let keeper = tokio::spawn(keeper.run(progress));
            Ok(Self { server, engine: handle, ended, keeper })
        })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Waits until the engine ends by itself, which only happens when it fails.
    pub async fn ended(&mut self) -> Result<(), Error> {
        match (&mut self.ended).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(Error::Gone("its thread has panicked".to_owned())),
        }
    }

    /// Ends it: what is under way is written, stays as it is, and goes on the next time.
    pub fn stop(mut self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            self.engine.shut_down();
            let result = self.ended().await;
            let _ = self.keeper.await;
            self.server.stop().await;
            result
        })
    }
}

/// Runs the engine on a thread of its own; the receiver hears its end.
fn serve(
    engine: Engine,
    to_keeper: mpsc::Sender<engine::Progress>,
) -> Result<oneshot::Receiver<Result<(), engine::Error>>, Error> {
    let (end, ended) = oneshot::channel();
    let work = move || {
        let result = engine.serve(&mut |progress| {
            let _ = to_keeper.blocking_send(progress);
        });
        drop(to_keeper);
        let _ = end.send(result);
    };
    let thread = std::thread::Builder::new().name("etl-engine".to_owned()).spawn(work);
    thread.map_err(|error| Error::Gone(error.to_string()))?;
    Ok(ended)
}

/// Asks the engine's loop again and again whether it turns.
fn watch(engine: &Handle, watchdog: &Watchdog) -> Result<(), Error> {
    let (engine, beat) = (engine.clone(), watchdog.watch("engine loop"));
    let work = move || {
        while engine.start(Vec::new()).recv().is_ok() {
            beat.turned(Instant::now());
            std::thread::sleep(PULSE);
        }
    };
    let thread = std::thread::Builder::new().name("etl-pulse".to_owned()).spawn(work);
    thread.map(drop).map_err(|error| Error::Gone(error.to_string()))
}

#[async_trait]
impl Probes for Api {
    fn live(&self) -> Result<(), String> {
        let stuck = self.watchdog.stuck(Instant::now());
        if stuck.is_empty() { Ok(()) } else { Err(stuck.join(", ")) }
    }

    async fn ready(&self) -> Readiness {
        match self.readers.read(store::Reader::macro_stats).await {
            Ok(Some(orchestrator)) => Readiness::ready(json!({ "macro": orchestrator.state })),
            Ok(None) => Readiness::not_ready(json!({ "store": "the engine has not begun" })),
            Err(error) => Readiness::not_ready(json!({ "store": error.to_string() })),
        }
    }

    fn metrics(&self) -> String {
        let stands = self.readers.read_here(|reader| Ok((reader.macro_stats()?, reader.providers()?)));
        let (orchestrator, providers) = stands.unwrap_or_default();
        self.metrics.text(orchestrator.as_ref(), &providers, &self.feeds.all(), keeper::now())
    }
}
