//! `phalanx election`: asks a running agent.

mod list;
mod members;
mod resign;
mod status;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use phalanx_election::client::Client;

use crate::settings::election::SecurityArgs;

/// Asks a running election agent, and steers it.
#[derive(Args)]
pub(crate) struct Election {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Status(status::Status),
    List(list::List),
    Resign(resign::Resign),
    Members(members::Members),
    Remove(members::Remove),
}

impl Election {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Status(status) => status.run(),
            Command::List(list) => list.run(),
            Command::Resign(resign) => resign.run(),
            Command::Members(members) => members.run(),
            Command::Remove(remove) => remove.run(),
        }
    }
}

/// Which agent is asked.
#[derive(Args, Clone)]
#[command(next_help_heading = "Which agent")]
struct Place {
    /// The gRPC addresses of its nodes, separated by commas; one that answers is enough.
    #[arg(
        long,
        env = "ELECTION_AGENT_ADDR",
        value_name = "ADDRESS",
        value_delimiter = ',',
        default_value = "127.0.0.1:9090"
    )]
    addr: Vec<String>,

    #[command(flatten)]
    protection: SecurityArgs,
}

impl Place {
    /// Asks, with a client of that agent.
    fn ask<T>(&self, ask: impl AsyncFnOnce(Client) -> Result<T>) -> Result<T> {
        let security = self.protection.security(false)?;
        let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be made")?;
        runtime.block_on(async {
            let client = Client::new(&self.addr, &security)?;
            ask(client).await
        })
    }
}

/// Seconds with a digit behind the point.
fn seconds(duration: Option<prost_types::Duration>) -> String {
    let whole = duration.and_then(|duration| std::time::Duration::try_from(duration).ok());
    whole.map_or_else(|| "-".to_owned(), |left| format!("{:.1} s", left.as_secs_f64()))
}
