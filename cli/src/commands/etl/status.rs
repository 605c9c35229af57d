//! `phalanx etl status`: how the orchestrator and the providers stand, once or all the time.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use phalanx_etl::store::{MacroStats, ProviderStats, Reader};
use serde_json::{Value, json};

use super::client::Place;
use super::{Common, print};
use crate::commands::table::Table;

/// How often a service is asked.
const EVERY: Duration = Duration::from_secs(1);

/// Shows the orchestrator and the providers.
///
/// Reads the database; with --watch it asks a service instead, again and again, and shows whatever changes until Ctrl-C.
#[derive(Args)]
pub(super) struct Status {
    /// Ask the service and go on watching.
    #[arg(long)]
    watch: bool,

    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    common: Common,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if self.watch {
            return self.watch();
        }
        let reader = Reader::open(&self.common.db)?;
        let (orchestrator, providers) = (reader.macro_stats()?, reader.providers()?);
        if self.common.json {
            print(json!({ "macro": orchestrator, "providers": providers }))?;
        } else {
            show(orchestrator.as_ref(), providers.into_iter().map(|one| (one, Value::Null)))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn watch(&self) -> anyhow::Result<ExitCode> {
        let clears = std::io::stdout().is_terminal();
        let mut shown = Value::Null;
        let service = self.place.client(None)?;
        loop {
            let tree = service.get("/api/v1/etl/tree")?;
            if tree != shown {
                if self.common.json {
                    print(&tree)?;
                } else {
                    if clears {
                        // To the upper left, and nothing below.
                        print("\x1b[H\x1b[2J")?;
                    }
                    show_tree(&tree).context("the answer is not that of an ETL service of this version")?;
                }
                shown = tree;
            }
            std::thread::sleep(EVERY);
        }
    }
}

fn show_tree(tree: &Value) -> anyhow::Result<()> {
    let orchestrator: Option<MacroStats> = serde_json::from_value(tree["macro"].clone())?;
    let mut providers = Vec::new();
    for node in tree["providers"].as_array().into_iter().flatten() {
        providers.push((serde_json::from_value::<ProviderStats>(node.clone())?, node["feed"].clone()));
    }
    show(orchestrator.as_ref(), providers.into_iter())
}

/// As a table; beside each provider what a service says of its feed.
fn show(
    orchestrator: Option<&MacroStats>,
    providers: impl Iterator<Item = (ProviderStats, Value)>,
) -> anyhow::Result<()> {
    if let Some(one) = orchestrator {
        print(format_args!("{} {} since {}", one.id, one.state, one.updated_at))?;
    }
    let mut table = Table::new(&[
        "provider",
        "state",
        "processed",
        "errors",
        "permits",
        "last run",
        "checkpoint",
        "note",
    ]);
    for (one, feed) in providers {
        let mut notes = Vec::new();
        if feed["stale"] == true {
            let completed = feed["completed_at"].as_str().unwrap_or("never");
            notes.push(format!(
                "STALE: completed {completed}, should every {} s",
                feed["fresh_within_seconds"]
            ));
        }
        if let Some(next) = feed["next_start"].as_str() {
            notes.push(format!("next {next}"));
        }
        if one.pause_wish {
            notes.push("pauses when it can".to_owned());
        }
        if let Some(deadline) = one.deadline {
            notes.push(format!("waits until {deadline}"));
        }
        if one.stale {
            notes.push("stale: the last run did not complete".to_owned());
        }
        if one.permits_revoked > 0 {
            let why = one.permits_why.unwrap_or_default();
            notes.push(format!("{} permits revoked: {why}", one.permits_revoked));
        }
        table.row([
            one.id,
            one.state,
            one.processed_count.to_string(),
            one.error_count.to_string(),
            format!("{} of {}", one.permits_held, one.permits_wanted),
            one.last_outcome.unwrap_or_default(),
            one.last_checkpoint.unwrap_or_default(),
            notes.join("; "),
        ]);
    }
    print(table)
}
