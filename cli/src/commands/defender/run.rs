//! A defender from its start to its farewell.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use phalanx_cluster::StartError;
use phalanx_defender::api::Api;
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::worker::{Defender, DefenderError, Options};
use phalanx_service::{Server, Token};

use super::plan::Plan;
use crate::connect::{self, Meeting, Shelf, Trouble};
use crate::data_folder::DataFolder;
use crate::settings::election::Grantor;
use crate::settings::places::Coordination;
use crate::signals::Stop;

/// How long the farewell may take: a drain of 25 s, and what follows it.
const FAREWELL: Duration = Duration::from_secs(30);

pub(super) fn run(plan: Plan, until_stdin_ends: bool) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be made")?;
    runtime.block_on(serve(plan, until_stdin_ends))
}

async fn serve(plan: Plan, until_stdin_ends: bool) -> Result<ExitCode> {
    let text = std::fs::read_to_string(&plan.strategy)
        .with_context(|| format!("the strategy file {} cannot be read", plan.strategy.display()))?;
    let strategy = Strategy::parse(&text).map_err(|e| anyhow::anyhow!("{}:{e}", plan.strategy.display()))?;
    let strategy = Arc::new(Holder::new(strategy));
    let folder = match &plan.places.coordination {
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
    // Only whoever has the folder notes its address there: it is not known before the start whether somebody else has it.
    let note_address = || folder.as_ref().map_or(Ok(()), |folder| folder.note_address(&server.url()));
    let mut stop = Stop::listen()?;
    if until_stdin_ends {
        stop = stop.and_to_the_end_of_input();
    }
    let started = tokio::select! {
        () = stop.wanted() => None,
        started = start(&plan, &strategy, &api, &note_address) => Some(started?),
    };
    if let Some(Started { meeting, charts, defender }) = started {
        let defender = Arc::new(defender);
        api.attach(defender.clone(), &*meeting.backend(), &plan.options.settings).await?;
        note_address()?;
        tokio::select! {
            () = stop.wanted() => {}
            never = charts.keep_young() => match never {},
        }
        eprintln!("leaving");
        if tokio::time::timeout(FAREWELL, defender.shutdown()).await.is_err() {
            eprintln!("the farewell took longer than {} s; leaving without it", FAREWELL.as_secs());
        }
        server.stop().await;
        api.detach();
        charts.close().await;
        meeting.close().await;
    } else {
        server.stop().await;
    }
    if let Some(folder) = folder {
        folder.forget_address();
    }
    Ok(ExitCode::SUCCESS)
}

/// What runs.
struct Started {
    meeting: Meeting,
    charts: Shelf,
    defender: Defender,
}

/// Connects and starts. What does not answer is tried again for as long as it takes; what refuses is an error.
async fn start(
    plan: &Plan,
    strategy: &Arc<Holder>,
    api: &Api,
    note_address: impl Fn() -> Result<()>,
) -> Result<Started> {
    let told = |error: &str| {
        // Where it waits it can be asked what for. Without the note it only has to be asked by its address.
        let _ = note_address();
        plan.options.metrics.cluster().initialization_failed();
        api.waits_for(error);
    };
    connect::patiently(async || attempt(plan, strategy, api).await, told).await
}

async fn attempt(plan: &Plan, strategy: &Arc<Holder>, api: &Api) -> Result<Started, Trouble> {
    let (meeting, charts) = connect::connect(&plan.places).await?;
    let observer = Arc::new(api.clone());
    let election = plan.grantor.as_ref().map(Grantor::election).transpose().map_err(Trouble::Refused)?;
    let options = Options { strategy_file: Some(plan.strategy.clone()), election, ..plan.options.clone() };
    let defender =
        Defender::start(meeting.backend(), charts.store(), strategy.clone(), observer, options).await;
    match defender {
        Ok(defender) => Ok(Started { meeting, charts, defender }),
        Err(DefenderError::Backend(error) | DefenderError::Worker(StartError::Backend(error))) => {
            Err(error.into())
        }
        // The list of chambers comes from the store: it may answer later.
        Err(error @ DefenderError::Worker(StartError::Partitions(_))) => Err(Trouble::Away(error.into())),
        Err(DefenderError::Store(error)) => Err(error.into()),
        Err(error @ DefenderError::Worker(_)) => Err(Trouble::Refused(error.into())),
    }
}
