//! `phalanx collector`: the way in, alone.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use phalanx_defender::app::{CollectorConfig, Coordination, run_collector};
use phalanx_service::Shutdown;

use crate::settings::args::ConnectionArgs;
use crate::settings::connections::ConnectionSettings;

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
    connections: ConnectionArgs,
}

impl CollectorCommand {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut parser = self.connections.parser();
        let settings = ConnectionSettings::parse(&mut parser, "phalanx collector");
        if settings
            .as_ref()
            .is_some_and(|settings| matches!(settings.connections.coordination, Coordination::Embedded(_)))
        {
            parser.errors.push(
                "NATS_SERVERS is not set: in a data folder the defender itself takes runs in (POST /api/v1/contexts)"
                    .to_owned(),
            );
        }
        let Some(ConnectionSettings { connections, stores, .. }) =
            settings.filter(|_| parser.errors.is_empty())
        else {
            eprintln!("error: the collector cannot start:");
            for error in &parser.errors {
                eprintln!("  - {error}");
            }
            return Ok(ExitCode::from(2));
        };
        let config = CollectorConfig {
            connections,
            settings: stores,
            http_addr: self.http_addr,
            token: self.api_token.filter(|token| !token.trim().is_empty()),
            log: Arc::new(|line| eprintln!("{line}")),
        };
        let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be made")?;
        runtime.block_on(async {
            run_collector(config, Shutdown::on_termination()?).await?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
