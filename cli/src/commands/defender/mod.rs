mod config;
#[cfg(test)]
mod subscriptions_test;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use phalanx_defender::app;
use phalanx_service::Shutdown;

use config::DefenderConfig;

use crate::settings::args::DefenderArgs;

/// Runs a defender: it joins the fleet at NATS, or works alone in a data folder.
///
/// Alone it needs nothing but a folder with a strategy file:
///
///   phalanx defender --data-dir FOLDER --strategy-file FILE
///
/// Every flag is also an environment variable.
#[derive(Args)]
pub(crate) struct Defender {
    #[command(flatten)]
    settings: DefenderArgs,

    /// Leave when standard input ends: for whoever starts defenders and wants none of them to outlive it.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

impl Defender {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match DefenderConfig::parse(&self.settings) {
            Ok(config) => {
                let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be made")?;
                runtime.block_on(run(config, self.until_stdin_ends))
            }
            Err(errors) => {
                eprintln!("error: the defender cannot start:");
                for error in errors {
                    eprintln!("  - {error}");
                }
                Ok(ExitCode::from(2))
            }
        }
    }
}

async fn run(config: DefenderConfig, until_stdin_ends: bool) -> anyhow::Result<ExitCode> {
    let mut shutdown = Shutdown::on_termination()?;
    if until_stdin_ends {
        shutdown = shutdown.with_stdin_close();
    }
    app::run(config.into_app()?, shutdown).await?;
    Ok(ExitCode::SUCCESS)
}
