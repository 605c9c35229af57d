//! `phalanx demo`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use phalanx_demo::{ChildCommand, Options, Servers};
use phalanx_service::Shutdown;

/// Shows Phalanx at work, without any server or on those you name.
///
/// A simulated fab of 60 chambers sends its runs to five defenders. Meanwhile a defender crashes, two are
/// added, and all are replaced one by one in a rolling update. In the end it is counted, from what the fab sent and what is
/// read back from the store: what was lost, what was done twice, which faults were found, and how many alarms were false.
#[derive(Args)]
pub(crate) struct Demo {
    /// How long it runs, like 60s or 2m.
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = time)]
    length: Duration,
    /// Makes the fab reproducible; times are not.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints the summary alone, as JSON; everything else goes to standard error.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    servers: ServerArgs,
}

/// Arguments that name real servers, instead of stores in this process.
#[derive(Args)]
struct ServerArgs {
    /// Coordinate at these NATS servers, separated by commas. They must serve no other fleet.
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// Keep charts in this Cassandra: hosts, separated by commas. It gets a keyspace of its own, which is removed in the
    /// end.
    #[arg(long, value_name = "HOSTS")]
    cassandra: Option<String>,
    /// Run every defender as a process of its own; needs --nats and --cassandra.
    #[arg(long)]
    processes: bool,
}

impl ServerArgs {
    /// Returns the servers, or the reason why the arguments conflict.
    fn servers(&self) -> Result<Option<Servers>, &'static str> {
        match (&self.nats, &self.cassandra, self.processes) {
            (Some(nats), Some(cassandra), _) => {
                Ok(Some(Servers { nats: nats.clone(), cassandra: cassandra.clone() }))
            }
            (None, None, false) => Ok(None),
            (_, _, true) => Err(
                "--processes needs --nats URL and --cassandra HOSTS: processes meet at NATS, and take over each other's \
                 charts, so they need a store that all of them reach",
            ),
            (Some(_), None, false) => Err("--nats goes together with --cassandra HOSTS"),
            (None, Some(_), false) => Err("--cassandra goes together with --nats URL"),
        }
    }

    /// Returns the command of a child process, if the defenders are some: this program.
    fn child_command(&self) -> Result<Option<ChildCommand>> {
        if !self.processes {
            return Ok(None);
        }
        let program = std::env::current_exe().context("this program does not know where it lies")?;
        let args = ["defender", "--until-stdin-ends"].map(Into::into).to_vec();
        Ok(Some(ChildCommand { program, args }))
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        _ => return Err(format!("{text:?} is no time like 60s or 2m")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no time like 60s or 2m"))?;
    match Duration::from_secs(number.saturating_mul(seconds)) {
        length if (MIN_LENGTH..=MAX_LENGTH).contains(&length) => Ok(length),
        _ => Err(format!("{text:?}: the demo runs for 30s to 60m")),
    }
}

/// Shortest demo; in less time the charts would not learn their limits.
const MIN_LENGTH: Duration = Duration::from_secs(30);
const MAX_LENGTH: Duration = Duration::from_secs(3600);

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let servers = match self.servers.servers() {
            Ok(servers) => servers,
            Err(conflict) => {
                eprintln!("error: {conflict}");
                return Ok(ExitCode::from(2));
            }
        };
        let child_command = self.servers.child_command()?;
        let options =
            Options { length: self.length, seed: self.seed, servers, child_command, is_quiet: self.json };
        let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be made")?;
        let summary = runtime.block_on(async {
            let shutdown = Shutdown::on_termination()?;
            phalanx_demo::run(options, shutdown).await
        })?;
        let Some(summary) = summary else {
            eprintln!("ended before it was over");
            return Ok(ExitCode::FAILURE);
        };
        if self.json {
            println!("{}", summary.json());
        } else {
            println!("\n{}", summary.text());
        }
        Ok(if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
