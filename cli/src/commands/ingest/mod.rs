//! `phalanx ingest`: one run, from its file to its charts.

mod outcome;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use jiff::Timestamp;
use phalanx_defender::notification::check_context;
use phalanx_defender::record::Chamber;
use phalanx_defender::strategy::{MAX_FILE, Strategy};
use phalanx_defender::traces::{MAX_INPUT, Recording, Traces};

use super::local::Place;

/// Takes the traces of a finished run in, and says what its charts make of it.
///
/// The exit code is 0 when the run was processed, also when it raised alarms, and 1 when it was refused or is a dead
/// letter. While it works, the data folder is locked.
#[derive(Args)]
pub(crate) struct Ingest {
    /// The traces: a CSV file (time in microseconds, then one column for each SVID), a JSON file, or a Mebo blob.
    #[arg(value_name = "FILE.csv|FILE.json|FILE.mebo")]
    file: PathBuf,

    /// The tool.
    #[arg(long)]
    tool: String,

    /// The chamber of the tool.
    #[arg(long)]
    chamber: String,

    /// The id of the run. One that was here before changes nothing.
    #[arg(long)]
    context: String,

    /// When the run was complete, such as 2026-01-31T10:30:45Z; otherwise now.
    #[arg(long, value_name = "TIME")]
    timestamp: Option<Timestamp>,

    /// The strategy file; otherwise strategy.toml in the data folder.
    #[arg(long, env = "STRATEGY_FILE", value_name = "FILE")]
    strategy: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

/// A run that is good enough to be sent.
struct Sent {
    chamber: Chamber,
    context: String,
    timestamp: Timestamp,
    chunks: Vec<Bytes>,
}

impl Ingest {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let chamber = Chamber::new(&self.tool, &self.chamber)?;
        check_context(&self.context)?;
        let file = self.strategy.unwrap_or_else(|| self.place.data_dir.join("strategy.toml"));
        let strategy = read_strategy(&file)?;
        let chunks = read_traces(&self.file).with_context(|| self.file.display().to_string())?;
        let timestamp = self.timestamp.unwrap_or_else(Timestamp::now);
        let sent = Sent { chamber, context: self.context, timestamp, chunks };
        let runtime = tokio::runtime::Runtime::new()?;
        let outcome = runtime.block_on(worker::process(self.place, strategy, &sent))?;
        if self.json {
            outcome.print_json()?
        } else {
            outcome.print()?
        }
        Ok(outcome.exit_code())
    }
}

fn read_strategy(file: &Path) -> anyhow::Result<Strategy> {
    let shown = file.display();
    let hint = || format!("cannot read the strategy {shown}; name one with --strategy FILE");
    let size = std::fs::metadata(file).with_context(hint)?.len();
    if size > MAX_FILE as u64 {
        bail!("{shown} has {size} bytes, {MAX_FILE} is the most for a strategy");
    }
    let text = std::fs::read_to_string(file).with_context(hint)?;
    Strategy::parse(&text).map_err(|error| anyhow!("{shown}, {error}"))
}

/// The traces of a file as they are stored. What cannot be read is refused here, before anything is written.
fn read_traces(file: &Path) -> anyhow::Result<Vec<Bytes>> {
    let size = std::fs::metadata(file).context("cannot read it")?.len();
    if size > MAX_INPUT as u64 {
        bail!("it has {size} bytes, {MAX_INPUT} is the most");
    }
    let bytes = std::fs::read(file).context("cannot read it")?;
    let extension = file.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    Ok(match extension.as_str() {
        "csv" => Recording::from_csv(&bytes)?.to_chunks()?,
        "json" => Recording::from_json(&bytes)?.to_chunks()?,
        "mebo" => {
            let chunks = vec![Bytes::from(bytes)];
            Traces::decode(&chunks, &[])?;
            chunks
        }
        _ => bail!("traces are in a file whose name ends with .csv, .json or .mebo"),
    })
}
