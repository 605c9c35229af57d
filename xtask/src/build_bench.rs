//! `cargo xtask bench build`: the cost of the first command of the README, compared with a budget.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace::{cargo, output};

/// Limits of the release build of `phalanx` on two cores, from nothing but downloaded sources.
const BUDGET: Cost = Cost {
    wall: Duration::from_secs(8 * 60),
    cpu: Duration::from_secs(14 * 60),
    crates: 375,
    binary_bytes: 60_000_000,
};

struct Cost {
    wall: Duration,
    cpu: Duration,
    crates: usize,
    binary_bytes: u64,
}

/// Builds the binary in an empty folder, prints what it costs, and fails if that is over budget.
pub(crate) fn run() -> Result<()> {
    output(&mut cargo(&["fetch", "--locked"]))?;
    let cost = measure()?;
    println!("{:<14}{:>12}{:>12}", "", "measured", "budget");
    let minutes = |time: Duration| format!("{:.1} min", time.as_secs_f64() / 60.0);
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let mut over = Vec::new();
    let mut row = |name: &'static str, measured: String, budget: String, is_over: bool| {
        println!("{name:<14}{measured:>12}{budget:>12}{}", if is_over { "  over budget" } else { "" });
        over.extend(is_over.then_some(name));
    };
    row("wall time", minutes(cost.wall), minutes(BUDGET.wall), cost.wall > BUDGET.wall);
    row("CPU time", minutes(cost.cpu), minutes(BUDGET.cpu), cost.cpu > BUDGET.cpu);
    row("crates", cost.crates.to_string(), BUDGET.crates.to_string(), cost.crates > BUDGET.crates);
    let is_large = cost.binary_bytes > BUDGET.binary_bytes;
    row("binary", megabytes(cost.binary_bytes), megabytes(BUDGET.binary_bytes), is_large);
    if !over.is_empty() {
        bail!(
            "over budget: {}; `cargo build --release --timings` shows where the time goes",
            over.join(", ")
        );
    }
    Ok(())
}

fn measure() -> Result<Cost> {
    let folder = tempfile::tempdir().context("could not create a temporary folder")?;
    let mut build = cargo(&["build", "--release", "--locked", "--offline", "--package", "phalanx-cli"]);
    build.args(["--message-format=json", "--target-dir"]).arg(folder.path()).stderr(Stdio::inherit());
    let (start, cpu) = (Instant::now(), cpu_of_children()?);
    let messages = output(&mut build)?;
    let (wall, cpu) = (start.elapsed(), cpu_of_children()?.saturating_sub(cpu));
    let mut crates = BTreeSet::new();
    for line in messages.lines() {
        let message: Value =
            serde_json::from_str(line).context("cargo printed something that is not JSON")?;
        if message["reason"] == "compiler-artifact" {
            crates.insert(message["package_id"].to_string());
        }
    }
    let binary = folder.path().join("release").join(format!("phalanx{}", std::env::consts::EXE_SUFFIX));
    let binary_bytes = fs::metadata(&binary).with_context(|| format!("no {}", binary.display()))?.len();
    Ok(Cost { wall, cpu, crates: crates.len(), binary_bytes })
}

/// Returns the processor time of all child processes that have ended, and of theirs.
fn cpu_of_children() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").context("CPU time is measured only on Linux")?;
    // The name of the program, in parentheses, may contain spaces; the state is the third field.
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat has no program name")?;
    let ticks: u64 =
        fields.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}
