//! A defender from its start to its farewell.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use phalanx_cluster::StartError;
use phalanx_cluster::backend::{self, Backend, Embedded, Retry};
use phalanx_cluster_nats::Nats;
use phalanx_defender::api::Api;
use phalanx_defender::store::{Cassandra, ChartStore, Sqlite, StoreError};
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::worker::{Defender, DefenderError, Options};
use phalanx_service::{Server, Token};
use tokio::signal::unix::{SignalKind, signal};

use super::plan::{Charts, Coordination, Plan};
use crate::data_folder::DataFolder;

/// How long is waited before a start is tried again; that doubles up to the second.
const AGAIN: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(30);
/// How long the farewell may take: a drain of 25 s, and what follows it.
const FAREWELL: Duration = Duration::from_secs(30);

pub(super) fn run(plan: Plan) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be made")?;
    runtime.block_on(serve(plan))
}

async fn serve(plan: Plan) -> Result<ExitCode> {
    let text = std::fs::read_to_string(&plan.strategy)
        .with_context(|| format!("the strategy file {} cannot be read", plan.strategy.display()))?;
    let strategy = Strategy::parse(&text).map_err(|e| anyhow::anyhow!("{}:{e}", plan.strategy.display()))?;
    let strategy = Arc::new(Holder::new(strategy));
    let folder = match &plan.coordination {
        Coordination::Embedded(folder) => Some(DataFolder::open(folder)?),
        Coordination::Nats(_) => None,
    };
    let token = match (&plan.token, &folder) {
        (Some(token), _) => Token::new(token),
        (None, Some(folder)) => Token::new(&folder.make_token()?),
        (None, None) => Token::none(),
    };
    let (pod_name, _) = plan.options.pod.clone().unwrap_or_default();
    let api = Api::new(&pod_name, plan.options.metrics.clone());
    let server = Server::bind(&plan.http_addr, api.app(token).router).await?;
    eprintln!("listening on {}", server.url());
    if let Some(folder) = &folder {
        folder.note_address(&server.url())?;
    }

    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be listened to")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be listened to")?;
    let mut stop = std::pin::pin!(async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    });
    let started = tokio::select! {
        () = &mut stop => None,
        started = start(&plan, &strategy, &api) => Some(started?),
    };
    if let Some((backend, defender)) = started {
        let defender = Arc::new(defender);
        let alone = folder.is_some();
        api.attach(defender.clone(), &*backend.backend(), &plan.options.settings, alone).await?;
        stop.await;
        eprintln!("leaving");
        if tokio::time::timeout(FAREWELL, defender.shutdown()).await.is_err() {
            eprintln!("the farewell took longer than {} s; leaving without it", FAREWELL.as_secs());
        }
        server.stop().await;
        api.detach();
        backend.close().await;
    } else {
        server.stop().await;
    }
    if let Some(folder) = folder {
        folder.forget_address();
    }
    Ok(ExitCode::SUCCESS)
}

/// What defenders meet at.
enum Meeting {
    Embedded(Arc<Embedded>),
    Nats(Arc<dyn Backend>),
}

impl Meeting {
    fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Embedded(embedded) => embedded.clone(),
            Self::Nats(nats) => nats.clone(),
        }
    }

    async fn close(&self) {
        if let Self::Embedded(embedded) = self {
            embedded.close().await;
        }
    }
}

/// Connects and starts. What does not answer is tried again for as long as it takes; what refuses is an error.
async fn start(plan: &Plan, strategy: &Arc<Holder>, api: &Api) -> Result<(Meeting, Defender)> {
    let mut wait = AGAIN;
    loop {
        match attempt(plan, strategy, api).await {
            Ok(started) => return Ok(started),
            Err(Trouble::Refused(error)) => return Err(error),
            Err(Trouble::Away(error)) => {
                plan.options.metrics.initialization_failed();
                api.waits_for(&format!("{error:#}"));
                eprintln!("INITIALIZATION: {error:#}; trying again in {} s", wait.as_secs());
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(AT_MOST);
            }
        }
    }
}

enum Trouble {
    /// It does not answer: it may later.
    Away(anyhow::Error),
    /// It answers, and does not want this.
    Refused(anyhow::Error),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Away(error.into()),
            StoreError::Refused(_) => Self::Refused(error.into()),
        }
    }
}

impl From<backend::Error> for Trouble {
    fn from(error: backend::Error) -> Self {
        match error.retry() {
            Retry::Safe | Retry::AfterReading => Self::Away(error.into()),
            Retry::Useless => Self::Refused(error.into()),
        }
    }
}

async fn attempt(plan: &Plan, strategy: &Arc<Holder>, api: &Api) -> Result<(Meeting, Defender), Trouble> {
    let meeting = match &plan.coordination {
        Coordination::Embedded(folder) => Meeting::Embedded(Arc::new(Embedded::open(folder)?)),
        Coordination::Nats(config) => Meeting::Nats(Arc::new(Nats::connect(config).await?)),
    };
    let store: Arc<dyn ChartStore> = match &plan.charts {
        Charts::Sqlite(folder) => Arc::new(Sqlite::open(&folder.join("charts.db"))?),
        Charts::Cassandra(config) => Arc::new(Cassandra::connect(config).await?),
    };
    let observer = Arc::new(api.clone());
    let options = Options { strategy_file: Some(plan.strategy.clone()), ..plan.options.clone() };
    let defender = Defender::start(meeting.backend(), store, strategy.clone(), observer, options).await;
    match defender {
        Ok(defender) => Ok((meeting, defender)),
        Err(DefenderError::Backend(error) | DefenderError::Worker(StartError::Backend(error))) => {
            Err(error.into())
        }
        // The list of chambers comes from the store: it may answer later.
        Err(error @ DefenderError::Worker(StartError::Partitions(_))) => Err(Trouble::Away(error.into())),
        Err(DefenderError::Store(error)) => Err(error.into()),
        Err(error @ DefenderError::Worker(_)) => Err(Trouble::Refused(error.into())),
    }
}
