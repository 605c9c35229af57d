//! `phalanx plan`: what would move, before anybody moves it.

mod partitions;
mod report;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use phalanx_cluster::core::planner::{Mode, Options, PlannerInput, Strategy, plan};
use phalanx_cluster::core::types::Weight;

use partitions::Partition;
use report::Report;

/// Shows what a change of the fleet would move, before anybody makes it.
///
/// Partitions are named `tool:chamber`, workers `defender-N`. The fleet before the change is planned from nothing for
/// `--from` workers; then comes the change: `--to` workers (planned), or `--crash` (an emergency, which moves only what
/// the crashed workers had and is exempt from the band).
#[derive(Args)]
pub(crate) struct Plan {
    /// A CSV file: `tool_id,chamber_id,weight`, or instead of the weight its factors
    /// `svid_count,collection_freq_hz,context_duration_seconds`.
    #[arg(
        long,
        value_name = "FILE.csv",
        conflicts_with = "synthetic",
        required_unless_present = "synthetic"
    )]
    partitions: Option<PathBuf>,

    /// Instead of a file: that many partitions with weights spread log-uniformly over 30,000…3,600,000.
    #[arg(long, value_name = "COUNT")]
    synthetic: Option<usize>,

    /// The seed of the synthetic weights.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How many workers there are.
    #[arg(long, value_name = "WORKERS")]
    from: u32,

    /// How many workers there shall be.
    #[arg(long, value_name = "WORKERS", conflicts_with = "crash", required_unless_present = "crash")]
    to: Option<u32>,

    /// A worker that crashes, such as `defender-3`; may be given several times.
    #[arg(long, value_name = "WORKER")]
    crash: Vec<String>,

    /// How far a load may be from the mean, as a part of it.
    #[arg(long, default_value_t = Options::default().threshold)]
    threshold: f64,

    /// How partitions are spread.
    #[arg(long, default_value = "weighted")]
    strategy: StrategyName,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,

    /// With --json: also who owns each partition before and after.
    #[arg(long, requires = "json")]
    full: bool,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum StrategyName {
    /// Balanced by weight, moving the least.
    Weighted,
    /// A hash ring.
    ConsistentHash,
    /// One each in turn.
    RoundRobin,
}

impl From<StrategyName> for Strategy {
    fn from(name: StrategyName) -> Self {
        match name {
            StrategyName::Weighted => Self::Weighted,
            StrategyName::ConsistentHash => Self::ConsistentHash,
            StrategyName::RoundRobin => Self::RoundRobin,
        }
    }
}

impl Plan {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if !(0.0..=1.0).contains(&self.threshold) {
            bail!("--threshold {}: it is a part of the mean, from 0 to 1", self.threshold);
        }
        if self.from == 0 {
            bail!("--from 0: there must be a worker before there can be a change");
        }
        let partitions = self.partitions()?;
        let (workers, mode) = self.change()?;
        let options =
            Options { strategy: self.strategy.into(), threshold: self.threshold, ..Options::default() };
        let before_workers: Vec<u32> = (0..self.from).collect();
        let items = |owners: &[u32]| -> Vec<PlannerInput<'_>> {
            let previous = owners.iter().copied().map(Some).chain(std::iter::repeat(None));
            partitions
                .iter()
                .zip(previous)
                .map(|(partition, previous)| PlannerInput {
                    name: &partition.name,
                    weight: Weight(partition.weight),
                    previous,
                })
                .collect()
        };
        let before = plan(&items(&[]), &before_workers, &options, Mode::Planned);
        let problem = items(&before.owners);
        let start = Instant::now();
        let after = plan(&problem, &workers, &options, mode);
        let report = Report {
            partitions: &partitions,
            before_workers: &before_workers,
            after_workers: &workers,
            before: &before.owners,
            after: &after.owners,
            statistics: after.statistics,
            threshold: self.threshold,
            calculation_micros: start.elapsed().as_micros(),
        };
        if self.json {
            report.print_json(self.full)?
        } else {
            report.print_table()?
        }
        Ok(ExitCode::SUCCESS)
    }

    fn partitions(&self) -> anyhow::Result<Vec<Partition>> {
        match (&self.partitions, self.synthetic) {
            (Some(file), _) => partitions::read(file),
            (None, count) => Ok(partitions::synthetic(count.unwrap_or_default(), self.seed)),
        }
    }

    /// The workers after the change, and what kind of change it is.
    fn change(&self) -> anyhow::Result<(Vec<u32>, Mode)> {
        if let Some(to) = self.to {
            if to == 0 {
                bail!("--to 0: nobody would be left to own anything");
            }
            return Ok(((0..to).collect(), Mode::Planned));
        }
        let crashed: BTreeSet<u32> =
            self.crash.iter().map(|name| self.worker(name)).collect::<anyhow::Result<_>>()?;
        let living: Vec<u32> = (0..self.from).filter(|id| !crashed.contains(id)).collect();
        if living.is_empty() {
            bail!("all {} workers crash: nobody would be left to own anything", self.from);
        }
        Ok((living, Mode::Emergency))
    }

    fn worker(&self, name: &str) -> anyhow::Result<u32> {
        let id: u32 = name
            .strip_prefix("defender-")
            .and_then(|number| number.parse().ok())
            .with_context(|| format!("--crash {name}: workers are called defender-0, defender-1, …"))?;
        if id >= self.from {
            bail!("--crash {name}: with --from {} the last worker is defender-{}", self.from, self.from - 1);
        }
        Ok(id)
    }
}
