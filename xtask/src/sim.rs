//! `cargo xtask sim`: a long simulation over fresh seeds, or a hunt for each rule that is left out.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::workspace::{cargo, succeed};

/// Faults rain for this long on each seed, in hours; healing comes on top.
const HOURS_PER_SEED: f64 = 0.25;

#[derive(Args)]
pub(crate) struct Options {
    /// How many cluster-hours to simulate.
    #[arg(long, default_value_t = 10_000.0)]
    hours: f64,

    /// How many workers each cluster has.
    #[arg(long, default_value_t = 8)]
    workers: u32,

    /// Number of partitions in each cluster.
    #[arg(long, default_value_t = 96)]
    partitions: u32,

    /// The first seed; without it a fresh one, from the clock.
    #[arg(long)]
    seed: Option<u64>,

    /// Run without each rule of the protocol and of its environment in turn, and print the seeds until an invariant breaks.
    #[arg(long)]
    mutants: bool,

    /// With --mutants: how many seeds each rule is given.
    #[arg(long, default_value_t = 200, requires = "mutants")]
    seeds: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.mutants {
        let base = options.seed.unwrap_or(0).to_string();
        let seeds = options.seeds.to_string();
        let example =
            ["run", "--quiet", "--release", "--package", "phalanx-sim", "--example", "mutants", "--"];
        return succeed(&mut cargo(&[&example[..], &[&seeds, &base]].concat()));
    }
    if !(options.hours > 0.0 && options.hours <= 10_000_000.0) {
        bail!("--hours {}: it must be more than 0 and at most ten million", options.hours);
    }
    let base = match options.seed {
        Some(seed) => seed,
        None => {
            SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs()
                * 1_000
        }
    };
    let seeds = (options.hours / HOURS_PER_SEED).ceil() as u64;
    let range = format!("{base}..{}", base.saturating_add(seeds));
    eprintln!(
        "simulating {} cluster-hours of {} workers and {} partitions: {HOURS_PER_SEED} h on each of the seeds {range}",
        options.hours, options.workers, options.partitions
    );
    let binary = ["run", "--quiet", "--release", "--package", "phalanx-cli", "--", "sim", "--seeds", &range];
    let (workers, partitions) = (options.workers.to_string(), options.partitions.to_string());
    let hours = HOURS_PER_SEED.to_string();
    let size = ["--workers", &workers, "--partitions", &partitions, "--hours", &hours];
    succeed(&mut cargo(&[&binary[..], &size[..]].concat()))
}
