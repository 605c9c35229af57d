//! `phalanx chambers`: which chambers there are, and what they weigh.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use phalanx_defender::weights;

use super::local::Place;

/// Says which chambers there are, and how much each has to do.
#[derive(Args)]
pub(crate) struct Chambers {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Takes a list of chambers in: all of it, or, where a line is wrong, nothing.
    ///
    /// The first line is tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds. Chambers that are
    /// known already get the new figures; those that are not in the list stay.
    Import {
        #[arg(value_name = "FILE.csv")]
        file: PathBuf,

        #[command(flatten)]
        place: Place,
    },
}

/// The largest list: a line is some fifty bytes, so this is a million chambers.
const MAX_LIST: u64 = 64 << 20;

impl Chambers {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Command::Import { file, place } = self.command;
        let shown = file.display();
        let size = std::fs::metadata(&file).with_context(|| format!("cannot read {shown}"))?.len();
        if size > MAX_LIST {
            bail!("{shown} has {size} bytes, {MAX_LIST} is the most for a list of chambers");
        }
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {shown}"))?;
        let chambers = weights::import(&text, Timestamp::now()).with_context(|| shown.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let local = place.open().await?;
            local.store.put_metadata(&chambers).await?;
            weights::announce_import(&*local.stores.assignments, &shown.to_string()).await?;
            local.backend.close().await;
            anyhow::Ok(())
        })?;
        let weight: u64 = chambers.iter().fold(0, |sum, chamber| sum.saturating_add(chamber.weight));
        writeln!(io::stdout(), "{} chambers imported, together they weigh {weight}", chambers.len())?;
        Ok(ExitCode::SUCCESS)
    }
}
