//! `phalanx ingest`: one run, from its file to its charts.

mod local;
mod outcome;
mod service;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use jiff::Timestamp;
use phalanx_defender::notification::check_context;
use phalanx_defender::record::Chamber;
use phalanx_defender::strategy::{MAX_FILE, Strategy};
use phalanx_defender::traces::{EncodedTraces, MAX_INPUT, Recording};

use super::show;
use crate::target::{Target, TargetArgs};
use crate::waiting::Waiting;

/// Takes the traces of a finished run in, and says what its charts make of it.
///
/// The exit code is 0 when the run was processed, also when it raised alarms, and 1 when it was refused or is a dead
/// letter. A running defender or fleet processes it; in a data folder that no defender runs on, this process does, and locks
/// the folder meanwhile.
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

    /// The strategy file, where this process does the work; otherwise strategy.toml in the data folder.
    #[arg(long, env = "STRATEGY_FILE", value_name = "FILE")]
    strategy: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: TargetArgs,
}

/// A run that takes longer does not come through: three attempts of 5 s each, the pauses between them, and a start.
const INGEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Poll interval of the report.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A validated run to send.
struct PreparedRun {
    chamber: Chamber,
    context: String,
    timestamp: Timestamp,
    traces: EncodedTraces,
    /// The file as it is, and its content type.
    file: Bytes,
    kind: &'static str,
}

impl PreparedRun {
    /// Returns the error of a run that takes too long.
    fn timeout_error(&self) -> anyhow::Error {
        anyhow!(
            "run {} of {} is in the log, but not through after {} s; it stays there for the next worker",
            self.context,
            self.chamber,
            INGEST_TIMEOUT.as_secs()
        )
    }
}

impl Ingest {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let chamber = Chamber::new(&self.tool, &self.chamber)?;
        check_context(&self.context)?;
        let (file, kind, traces) =
            read_traces(&self.file).with_context(|| self.file.display().to_string())?;
        let timestamp = self.timestamp.unwrap_or_else(Timestamp::now);
        let run = PreparedRun { chamber, context: self.context, timestamp, traces, file, kind };
        let file = self.strategy.or_else(|| Some(self.target.folder()?.strategy()));
        if self.target.runs_locally() {
            // Before anything is opened: a strategy that cannot be used stops it.
            read_strategy(file.as_deref())?;
        }
        let runtime = tokio::runtime::Runtime::new()?;
        let waiting = Waiting::until(format!("run {} of {} is being processed", run.context, run.chamber));
        let report = match runtime.block_on(self.target.resolve())? {
            Target::Service(client) => service::process(&client, &run)?,
            Target::Local(local) => {
                let strategy = move || read_strategy(file.as_deref());
                runtime.block_on(local::process(&local, strategy, &run))?
            }
        };
        drop(waiting);
        match self.json {
            true => show::json(&report)?,
            false => outcome::print(&report)?,
        }
        Ok(if report["outcome"] == "dead" { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn read_strategy(file: Option<&Path>) -> anyhow::Result<Strategy> {
    let Some(file) = file else { bail!("name a strategy with --strategy FILE") };
    let shown = file.display();
    let hint = || format!("cannot read the strategy {shown}; name one with --strategy FILE");
    let size = std::fs::metadata(file).with_context(hint)?.len();
    if size > MAX_FILE as u64 {
        bail!("{shown} has {size} bytes, {MAX_FILE} is the most for a strategy");
    }
    let text = std::fs::read_to_string(file).with_context(hint)?;
    Strategy::parse(&text).map_err(|error| anyhow!("{shown}, {error}"))
}

/// A file, its content type, and its traces as they are stored. What cannot be read is refused here, before anything is
/// written.
fn read_traces(file: &Path) -> anyhow::Result<(Bytes, &'static str, EncodedTraces)> {
    let size = std::fs::metadata(file).context("cannot read it")?.len();
    if size > MAX_INPUT as u64 {
        bail!("it has {size} bytes, {MAX_INPUT} is the most");
    }
    let bytes = Bytes::from(std::fs::read(file).context("cannot read it")?);
    let extension = file.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    let (kind, traces) = match extension.as_str() {
        "csv" => ("text/csv", Recording::from_csv(&bytes)?.to_chunks()?),
        "json" => ("application/json", Recording::from_json(&bytes)?.to_chunks()?),
        "mebo" => ("application/octet-stream", EncodedTraces::from_blobs(vec![bytes.clone()])?),
        _ => bail!("traces are in a file whose name ends with .csv, .json or .mebo"),
    };
    Ok((bytes, kind, traces))
}
