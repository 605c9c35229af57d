//! `phalanx etl run`: loads data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use clap::error::ErrorKind;
use phalanx_etl::core::Outcome;
use phalanx_etl::core::registry::{self, Needed};
use phalanx_etl::engine::{Command, Engine, Error, Handle, Options, Summary};
use phalanx_etl::providers::all;
use phalanx_etl::store::{Holding, Reader, RunRow};
use phalanx_service::Shutdown;
use serde_json::json;

use super::progress::Display;
use super::sources::Sources;
use crate::commands::table::Table;

const WITH_GAPS: u8 = 3;
const FAILED: u8 = 4;
const PAUSED: u8 = 5;
/// What shells give a process that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Loads data: each provider named, and what it needs.
///
/// Interrupted with Ctrl-C, the providers pause; `--resume` lets them go on. A second Ctrl-C ends the process at once;
/// after that, or killed in any other way, the next run goes on by itself where this one was.
/// The exit code is 0 when all completed, 3 when something is missing in a source, 4 when a provider failed, 5 when one
/// is paused.
#[derive(Args)]
pub(super) struct Run {
    /// Providers, such as cve.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,

    /// All providers.
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    sources: Sources,

    /// Lets paused providers go on.
    #[arg(long)]
    resume: bool,

    /// The database.
    #[arg(long, value_name = "FILE", default_value = "phalanx-etl.db")]
    db: PathBuf,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut options = Options::new(self.db.clone());
        options.resume = self.resume;
        self.sources.apply(&mut options);
        let engine = Engine::new(options)?;
        let ids = if self.all { engine.ids().to_vec() } else { self.ids.clone() };
        let plan = match engine.plan(&ids) {
            Err(Error::Registry(error @ registry::Error::Unknown { .. })) => wrong_use(&error.to_string()),
            plan => plan?,
        };
        for line in announce(&plan) {
            eprintln!("{line}");
        }
        pause_on_interrupt(engine.handle()).context("waiting for Ctrl-C")?;
        let mut display = Display::new();
        let summary = engine.run(&ids, &mut |progress| display.update(&progress))?;
        self.report(&summary)?;
        Ok(exit_code(&summary))
    }

    fn report(&self, summary: &Summary) -> anyhow::Result<()> {
        let ran = |id: &str| summary.runs.iter().any(|run| run.provider == id);
        let providers: Vec<_> = all().into_iter().map(|one| (one.id().to_owned(), one)).collect();
        let providers: Vec<_> = providers.into_iter().filter(|(id, _)| ran(id)).collect();
        let holdings = Reader::open(&self.db)?.holdings(&providers)?;
        if self.json {
            super::print(json!({ "runs": summary.runs, "holdings": holdings }))?;
        } else {
            super::print(table(&summary.runs))?;
            super::print(holdings_table(&holdings))?;
        }
        for id in &summary.paused {
            eprintln!("{id} is paused: `phalanx etl run {id} --resume` lets it go on");
        }
        for id in &summary.blocked {
            eprintln!("{id} did not start: what it needs has not completed");
        }
        Ok(())
    }
}

/// Who runs besides what was asked for, and because of whom.
fn announce(plan: &[Needed]) -> Vec<String> {
    let line = |needed: &Needed| {
        let by = needed.by.as_ref()?;
        Some(format!("{by} needs {}, which has not completed yet: it runs first", needed.id))
    };
    plan.iter().filter_map(line).collect()
}

/// Runs, as people read them.
pub(super) fn table(runs: &[RunRow]) -> Table {
    let mut table = Table::new(&[
        "provider",
        "run",
        "outcome",
        "read",
        "stored",
        "unchanged",
        "dead letters",
        "skipped",
        "ms",
        "why",
    ]);
    for run in runs {
        let mut why: Vec<_> = run.reason.clone().into_iter().collect();
        why.extend(run.skips.iter().map(|(reason, count)| format!("{count} skipped: {reason}")));
        let numbers = [run.read, run.stored, run.unchanged, run.dead_lettered, run.skipped, run.duration_ms];
        let outcome = run.outcome.clone().unwrap_or_else(|| "paused".to_owned());
        let names = [run.provider.clone(), run.run_id.clone(), outcome];
        table.row(names.into_iter().chain(numbers.map(|number| number.to_string())).chain([why.join("; ")]));
    }
    table
}

/// What the store holds now of each provider that ran.
fn holdings_table(holdings: &[Holding]) -> Table {
    let list = |counts: &BTreeMap<String, i64>| {
        counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    };
    let mut table = Table::new(&["provider", "records in the store", "in them", "links"]);
    for one in holdings {
        table.row([one.provider.clone(), list(&one.records), list(&one.entries), list(&one.links)]);
    }
    table
}

/// The worst that happened.
fn exit_code(summary: &Summary) -> ExitCode {
    let any =
        |outcome: Outcome| summary.runs.iter().any(|run| run.outcome.as_deref() == Some(outcome.name()));
    let code = if any(Outcome::Failed) || any(Outcome::Stopped) {
        FAILED
    } else if !summary.paused.is_empty() {
        PAUSED
    } else if any(Outcome::CompletedWithGaps) {
        WITH_GAPS
    } else {
        return ExitCode::SUCCESS;
    };
    ExitCode::from(code)
}

/// Ends the way clap does.
pub(super) fn wrong_use(why: &str) -> ! {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{why}\n")).exit()
}

/// The first Ctrl-C pauses, the second ends the process: the store is whole at every moment.
fn pause_on_interrupt(handle: Handle) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shutdown = {
        let _entered = runtime.enter();
        Shutdown::on_interrupt()?
    };
    std::thread::Builder::new().name("etl-interrupt".to_owned()).spawn(move || {
        runtime.block_on(async {
            shutdown.requested().await;
            handle.send(None, Command::Pause);
            eprintln!("interrupted: pausing after what is under way; Ctrl-C again ends at once");
            shutdown.requested_again().await;
            std::process::exit(INTERRUPTED)
        })
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_unasked_is_announced_with_who_needs_it() {
        let mut options = Options::new(PathBuf::from("there-is-none.db"));
        for provider in &mut options.providers {
            if provider.id == "cve" {
                provider.dependencies = vec!["asvs".to_owned()];
            }
        }
        let plan = Engine::new(options).unwrap().plan(&["cve".to_owned()]).unwrap();
        assert_eq!(announce(&plan), ["cve needs asvs, which has not completed yet: it runs first"]);
    }
}
