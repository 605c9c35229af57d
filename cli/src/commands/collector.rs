//! `phalanx collector`: the way in, alone.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use phalanx_cluster::backend::Stores;
use phalanx_defender::api::CollectorApi;
use phalanx_defender::collector::Collector;
use phalanx_service::{Server, Token};

use crate::connect::{self, Meeting, Shelf, Trouble};
use crate::settings::places::{Coordination, Places};
use crate::settings::reader::{Reader, text};
use crate::settings::variables::Connections;
use crate::signals::Stop;

/// Takes finished runs in over HTTP, for a fleet at NATS and Cassandra: it stores their traces and tells their chambers.
///
/// Every defender does that too; this is for who wants the way in apart from the work.
#[derive(Args)]
pub(crate) struct CollectorCommand {
    /// Where it listens.
    #[arg(long, env = "HTTP_ADDR", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    http_addr: String,

    /// The token that sending needs; without one nothing is taken in.
    #[arg(long, env = "API_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    api_token: Option<String>,

    #[command(flatten)]
    connections: Connections,
}

impl CollectorCommand {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut reader = Reader::default();
        let places = Places::new(&mut reader, &self.connections, "phalanx collector");
        if let Some(Places { coordination: Coordination::Embedded(_), .. }) = places {
            reader.wrong.push(
                "NATS_SERVERS is not set: in a data folder the defender itself takes runs in (POST /api/v1/contexts)"
                    .to_owned(),
            );
        }
        let Some(places) = places.filter(|_| reader.wrong.is_empty()) else {
            eprintln!("error: the collector cannot start:");
            for line in &reader.wrong {
                eprintln!("  - {line}");
            }
            return Ok(ExitCode::from(2));
        };
        let token = text(&self.api_token).map_or_else(Token::none, |token| Token::new(&token));
        let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be made")?;
        runtime.block_on(serve(&places, &self.http_addr, token))
    }
}

async fn serve(places: &Places, address: &str, token: Token) -> Result<ExitCode> {
    let api = CollectorApi::default();
    let server = Server::bind(address, api.app(token).router).await?;
    eprintln!("listening on {}", server.url());
    let mut stop = Stop::listen()?;
    let started = tokio::select! {
        () = stop.wanted() => None,
        started = connect::patiently(async || open(places).await, |error| api.waits_for(error)) => Some(started?),
    };
    if let Some((meeting, charts, stores)) = started {
        let collector =
            Collector::new(charts.store(), stores.log.clone()).announcing(stores.assignments.clone());
        api.open(collector, charts.store(), stores);
        stop.wanted().await;
        eprintln!("leaving");
        // What is being taken in is finished.
        server.stop().await;
        charts.close().await;
        meeting.close().await;
    }
    Ok(ExitCode::SUCCESS)
}

async fn open(places: &Places) -> Result<(Meeting, Shelf, Stores), Trouble> {
    let (meeting, charts) = connect::connect(places).await?;
    let stores = Stores::open(&*meeting.backend(), &places.settings).await?;
    Ok((meeting, charts, stores))
}
