//! `cargo xtask sim`: a long simulation over fresh seeds, or a hunt for each rule that is left out.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::workspace::{cargo, succeed};

/// Faults rain for this long on each seed, in hours; healing comes on top.
const HOURS_PER_SEED: f64 = 0.25;
/// Default number of cluster-hours in the core mode.
const CORE_HOURS: f64 = 10_000.0;
/// Default number of cluster-hours in the shell mode, which is slower.
const SHELL_HOURS: f64 = 100.0;

#[derive(Args)]
pub(crate) struct Options {
    /// Number of cluster-hours to simulate in each mode (default 10000 of the core, 100 of the shell).
    #[arg(long)]
    hours: Option<f64>,

    /// Code to simulate: `core`, `shell`, or both in turn.
    #[arg(long, default_value = "both", value_parser = ["core", "shell", "both"])]
    mode: String,

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
    let base = match options.seed {
        Some(seed) => seed,
        None => {
            SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs()
                * 1_000
        }
    };
    if options.mode != "shell" {
        run_mode(options, "core", base, options.hours.unwrap_or(CORE_HOURS))?;
    }
    if options.mode != "core" {
        run_mode(options, "shell", base, options.hours.unwrap_or(SHELL_HOURS))?;
    }
    Ok(())
}

/// Simulates so many cluster-hours in one mode.
fn run_mode(options: &Options, mode: &str, base: u64, cluster_hours: f64) -> Result<()> {
    if !(cluster_hours > 0.0 && cluster_hours <= 10_000_000.0) {
        bail!("--hours {cluster_hours}: it must be more than 0 and at most ten million");
    }
    let seeds = (cluster_hours / HOURS_PER_SEED).ceil() as u64;
    let range = format!("{base}..{}", base.saturating_add(seeds));
    eprintln!(
        "simulating ({mode} mode) {cluster_hours} cluster-hours of {} workers and {} partitions: {HOURS_PER_SEED} h on each of the seeds {range}",
        options.workers, options.partitions
    );
    let binary = ["run", "--quiet", "--release", "--package", "phalanx-cli", "--", "sim"];
    let seeds = ["--mode", mode, "--seeds", &range];
    let (workers, partitions) = (options.workers.to_string(), options.partitions.to_string());
    let hours = HOURS_PER_SEED.to_string();
    let size = ["--workers", &workers, "--partitions", &partitions, "--hours", &hours];
    succeed(&mut cargo(&[&binary[..], &seeds[..], &size[..]].concat()))
}
