//! `phalanx etl`: security data in, records out.

mod client;
mod control;
mod diff;
mod export;
mod path;
mod progress;
mod run;
mod search;
mod serve;
mod show;
mod sources;
mod status;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use phalanx_etl::engine::{Error, Options, retry};
use phalanx_etl::store::Reader;
use serde_json::json;

use crate::commands::table::Table;

/// Loads security data (CVE, CWE, CAPEC, ATT&CK, SSG, ASVS, CCE) into one database, and shows what is in it.
#[derive(Args)]
pub(crate) struct Etl {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Run),
    Serve(serve::Serve),
    /// Begins runs at a service, each with what it needs.
    Start(control::Control),
    /// Pauses runs at a service.
    Pause(control::Control),
    /// Lets paused runs at a service go on.
    Resume(control::Control),
    /// Ends runs at a service; the next ones go on where these stopped.
    Stop(control::Control),
    Status(status::Status),
    /// Shows the latest checkpoints, oldest first.
    Checkpoints(Listing),
    /// Shows the items that could not be understood, and why.
    Failures(Common),
    /// Shows the latest events, oldest first.
    Events(Listing),
    Search(search::Search),
    Show(show::Show),
    Path(path::Path),
    Export(export::Export),
    Diff(diff::Diff),
    /// Tries to understand dead letters once more, as a run of its own for each provider.
    ///
    /// What is understood becomes a record and leaves the dead letters; the rest stays, with today's reason.
    Retry {
        /// Providers; all of them where none is named.
        ids: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
}

/// What every command takes.
#[derive(Args)]
struct Common {
    /// The database.
    #[arg(long, value_name = "FILE", default_value = "phalanx-etl.db")]
    db: PathBuf,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Listing {
    /// How many at most.
    #[arg(long, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    common: Common,
}

impl Etl {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Run(run) => return run.run(),
            Command::Search(search) => return search.run(),
            Command::Show(show) => return show.run(),
            Command::Path(path) => return path.run(),
            Command::Export(export) => return export.run(),
            Command::Diff(diff) => return diff.run(),
            Command::Serve(serve) => return serve.run(),
            Command::Start(control) => return control.run("start"),
            Command::Pause(control) => return control.run("pause"),
            Command::Resume(control) => return control.run("resume"),
            Command::Stop(control) => return control.run("stop"),
            Command::Status(status) => return status.run(),
            Command::Checkpoints(listing) => checkpoints(&listing)?,
            Command::Failures(common) => failures(&common)?,
            Command::Events(listing) => events(&listing)?,
            Command::Retry { ids, common } => retry_letters(&ids, &common)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(text: impl std::fmt::Display) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

fn checkpoints(listing: &Listing) -> anyhow::Result<()> {
    let checkpoints = Reader::open(&listing.common.db)?.checkpoints(listing.limit)?;
    if listing.common.json {
        return print(json!({ "checkpoints": checkpoints }));
    }
    let mut table = Table::new(&["URN", "ProviderID", "ProcessedAt", "Success", "ErrorMessage"]);
    for one in checkpoints {
        let error = one.error_message.unwrap_or_default();
        table.row([one.urn, one.provider_id, one.processed_at, one.success.to_string(), error]);
    }
    print(table)
}

fn failures(common: &Common) -> anyhow::Result<()> {
    let letters = Reader::open(&common.db)?.dead_letters()?;
    if common.json {
        return print(json!({ "failures": letters }));
    }
    let mut table = Table::new(&["id", "provider", "run", "source", "position", "reason"]);
    for one in letters {
        let (id, position) = (one.id.to_string(), one.position.to_string());
        table.row([id, one.provider, one.run_id, one.source, position, one.reason]);
    }
    print(table)
}

fn events(listing: &Listing) -> anyhow::Result<()> {
    let events = Reader::open(&listing.common.db)?.events(listing.limit)?;
    if listing.common.json {
        return print(json!({ "events": events }));
    }
    let mut table = Table::new(&["seq", "at", "provider", "event", "detail"]);
    for one in events {
        table.row([one.seq.to_string(), one.at, one.provider, one.kind, one.detail]);
    }
    print(table)
}

fn retry_letters(ids: &[String], common: &Common) -> anyhow::Result<()> {
    let runs = match retry(&Options::new(common.db.clone()), ids) {
        Err(Error::Registry(error)) => run::wrong_use(&error.to_string()),
        runs => runs?,
    };
    if common.json {
        return print(json!({ "runs": runs }));
    }
    print(run::table(&runs))
}
