//! A list of chambers goes in.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use phalanx_defender::weights;

use crate::client::{Client, OutputArgs};
use crate::commands::show;
use crate::target::{Target, TargetArgs};
use crate::waiting::Waiting;

/// Takes a list of chambers in: all of it, or, where a line is wrong, nothing.
///
/// The first line is tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds. Chambers that are
/// known already get the new figures; those that are not in the list stay. A running fleet takes it up at once.
#[derive(Args)]
pub(super) struct Import {
    #[arg(value_name = "FILE.csv")]
    file: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

/// The largest list: a line is some fifty bytes, so this is a million chambers.
const MAX_LIST: u64 = 64 << 20;

impl Import {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let shown = self.file.display().to_string();
        let size = std::fs::metadata(&self.file).with_context(|| format!("cannot read {shown}"))?.len();
        if size > MAX_LIST {
            bail!("{shown} has {size} bytes, {MAX_LIST} is the most for a list of chambers");
        }
        let text = std::fs::read_to_string(&self.file).with_context(|| format!("cannot read {shown}"))?;
        // What is wrong is said here, with the name of the file, whoever takes it in.
        let chambers = weights::import(&text, Timestamp::now()).with_context(|| shown.clone())?;
        let runtime = tokio::runtime::Runtime::new()?;
        let waiting = Waiting::until(format!("storing {}", show::counted(chambers.len() as u64, "chamber")));
        match runtime.block_on(self.target.resolve())? {
            Target::Service(client) => upload(&client, text)?,
            Target::Local(local) => runtime.block_on(async {
                let stored = local.import(&chambers, &shown).await;
                local.close().await;
                stored
            })?,
        }
        drop(waiting);
        let weight: u64 = chambers.iter().fold(0, |sum, chamber| sum.saturating_add(chamber.weight));
        match self.output.json {
            true => show::json(&serde_json::json!({ "imported": chambers.len(), "weight": weight }))?,
            false => writeln!(
                io::stdout(),
                "{} imported, together they weigh {weight}",
                show::counted(chambers.len() as u64, "chamber")
            )?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn upload(client: &Client, list: String) -> anyhow::Result<()> {
    client.send("/api/v1/chambers", "text/csv", list.into_bytes()).map(drop)
}
