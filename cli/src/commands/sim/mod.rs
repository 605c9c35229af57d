//! `phalanx sim`: whole clusters in virtual time, with faults, and what they came to.

mod choice;
mod report;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use phalanx_cluster::core::{Config, LeaseExpiry};
use phalanx_sim::chaos::{self, ChaosOutcome, ChaosRun};
use phalanx_sim::{FailureReport, Injection, Rule, Totals, run_many};

use choice::Faults;
use report::Report;

/// How long faults are left out to find the fewest.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many of the failed seeds are shown.
const SHOWN: usize = 10;
/// How often the progress is told.
const PROGRESS: Duration = Duration::from_secs(10);

/// Simulates whole clusters in virtual time: faults, then healing, and every promise checked after each step.
///
/// The workers are those of production, around them a simulated broker, log and chart store. The same seed gives the
/// same run on every machine. A failure shows the seed, the fewest faults that still break the promise, and the command
/// that repeats it; the exit code is then 1.
#[derive(Args)]
pub(crate) struct Sim {
    /// Code to simulate: the core of the workers, or whole workers with their shell, codec and handler.
    #[arg(long, value_enum, default_value_t = Mode::Core)]
    mode: Mode,

    /// The seed of the one run.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Several runs: the seeds from A up to but not including B.
    #[arg(long, value_name = "A..B", conflicts_with = "seed", value_parser = choice::seeds)]
    seeds: Option<Range<u64>>,

    /// How many workers each cluster has.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: u32,

    /// Number of partitions in each cluster.
    #[arg(long, alias = "chambers", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    partitions: u32,

    /// How long faults rain on each cluster, in hours; the healing comes after that.
    #[arg(long, default_value_t = 1.0)]
    hours: f64,

    /// `all`, `none`, or names divided by commas, such as `sigkill,brokerOutage`.
    #[arg(long, default_value = "all", value_name = "LIST")]
    faults: Faults,

    /// Leases are granted by an Election Agent, which ends them after their term, and not by the broker.
    #[arg(long, alias = "agent")]
    election_agent: bool,

    /// Write what happens, line by line: of the shortened failure, or of the one run.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,

    /// Rule of the protocol or of its environment to run without (only in a build with the feature `mutants`).
    #[arg(long, alias = "without", value_name = "RULE", hide = true, value_parser = choice::rule)]
    disable_rule: Option<Rule>,
}

/// Code to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The core of the workers
    Core,
    /// Whole workers: shell, codec, backend traits and handler
    Shell,
}

impl From<Mode> for chaos::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Core => Self::Core,
            Mode::Shell => Self::Shell,
        }
    }
}

impl Sim {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if !(self.hours > 0.0 && self.hours <= 24.0 * 365.0) {
            bail!("--hours {}: it must be more than 0 and at most a year", self.hours);
        }
        if self.mode == Mode::Shell && self.election_agent {
            bail!("--election-agent requires --mode core: the shell mode simulates no Election Agent");
        }
        let trace = self.trace.as_deref().map(Trace::create).transpose()?;
        let seeds = self.seeds.clone().unwrap_or(self.seed..self.seed.saturating_add(1));
        let (mut totals, mut first, mut failed) = (Totals::default(), None, Vec::new());
        let start = Instant::now();
        let mut told = start;
        run_many(seeds.clone().map(|seed| self.of(seed)), |run, outcome| {
            totals.add(&outcome);
            if !outcome.violations.is_empty() {
                failed.push(run.seed);
                first.get_or_insert((run, outcome));
            }
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                report::progress(&totals, seeds.end - seeds.start, failed.len(), start.elapsed());
            }
            ControlFlow::Continue(())
        });
        let report = Report { totals: &totals, took: start.elapsed() };
        if self.json {
            report.print_json()?
        } else {
            report.print_table()?
        }
        match first {
            Some((run, outcome)) => {
                let deadline = Instant::now() + PATIENCE;
                let failure = FailureReport::of(&run, &outcome, || Instant::now() < deadline);
                eprintln!("{failure}");
                if failed.len() > 1 {
                    let shown: Vec<String> = failed.iter().take(SHOWN).map(ToString::to_string).collect();
                    let more = if failed.len() > SHOWN { ", …" } else { "" };
                    eprintln!("{} seeds failed: {}{more}", failed.len(), shown.join(", "));
                }
                trace.map(|trace| trace.write(&failure.run, &failure.injections)).transpose()?;
                Ok(ExitCode::FAILURE)
            }
            None => {
                match trace {
                    Some(trace) if totals.runs == 1 => {
                        let run = self.of(seeds.start);
                        trace.write(&run, &run.injections())?;
                    }
                    Some(trace) => eprintln!(
                        "no seed failed: nothing was written to {}; --seed writes the trace of one",
                        trace.path.display()
                    ),
                    None => {}
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    fn of(&self, seed: u64) -> ChaosRun {
        // Whole milliseconds, so that the printed number of hours gives the same run again.
        let length = Duration::from_millis((self.hours * 3_600_000.0).round().max(1.0) as u64);
        let run = ChaosRun::new(seed, self.workers as usize, self.partitions as usize, length);
        ChaosRun {
            mode: self.mode.into(),
            faults: self.faults.faults.clone(),
            request_faults: self.faults.request_faults.clone(),
            disabled_rule: self.disable_rule,
            lease_expiry: if self.election_agent {
                LeaseExpiry::AfterTerm(Config::default().lease_term)
            } else {
                LeaseExpiry::OnSilence
            },
            ..run
        }
    }
}

/// A file for what happens.
struct Trace<'a> {
    path: &'a Path,
    file: BufWriter<File>,
}

impl<'a> Trace<'a> {
    fn create(path: &'a Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("could not create {}", path.display()))?;
        Ok(Self { path, file: BufWriter::new(file) })
    }

    /// Carries the run out once more and writes it down.
    fn write(mut self, run: &ChaosRun, injections: &[Injection]) -> anyhow::Result<ChaosOutcome> {
        let mut written = Ok(());
        let mut write = |line: &str| {
            if written.is_ok() {
                written = writeln!(self.file, "{line}");
            }
        };
        let outcome = run.run_with(injections, Some(&mut write));
        for violation in &outcome.violations {
            write(&format!("broken: {violation}"));
        }
        written
            .and_then(|()| self.file.flush())
            .with_context(|| format!("could not write {}", self.path.display()))?;
        eprintln!("the trace is in {}", self.path.display());
        Ok(outcome)
    }
}
