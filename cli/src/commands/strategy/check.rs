use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use phalanx_defender::record::Chamber;
use phalanx_defender::strategy::{Chart, MAX_FILE, Strategy};

use crate::commands::table::Table;

/// Reads a strategy file and says what it means, or what is wrong with it and where.
///
/// With a list of chambers, says which charts each of them gets. Of charts with the same name the one that stands last in
/// the file counts.
#[derive(Args)]
pub(crate) struct Check {
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// A CSV file with the columns tool_id and chamber_id, as `chambers import` takes it.
    #[arg(long, value_name = "chambers.csv")]
    against: Option<PathBuf>,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let strategy = read(&self.file)?;
        let chambers = self.against.as_deref().map(chambers).transpose()?;
        let mut out = io::stdout().lock();
        let charts: usize = strategy.groups().map(|(_, _, charts)| charts.len()).sum();
        let groups = strategy.groups().count();
        writeln!(out, "{}: good, version {}", self.file.display(), strategy.version())?;
        writeln!(out, "{charts} charts in {groups} groups\n")?;
        writeln!(out, "{}", meaning(&strategy))?;
        if let Some(chambers) = chambers {
            writeln!(out, "\n{}", explanation(&strategy, &chambers))?;
            let without = chambers.iter().filter(|chamber| strategy.charts_for(chamber).is_empty()).count();
            if without > 0 {
                eprintln!(
                    "phalanx: {without} of {} chambers get no chart; their runs are counted and nothing else",
                    chambers.len()
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(file: &Path) -> anyhow::Result<Strategy> {
    let shown = file.display();
    let size = std::fs::metadata(file).with_context(|| format!("cannot read {shown}"))?.len();
    if size > MAX_FILE as u64 {
        bail!("{shown} has {size} bytes, {MAX_FILE} is the most for a strategy");
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    Strategy::parse(&text).map_err(|error| anyhow!("{shown}, {error}"))
}

/// The chambers of a file, each once, in its order.
fn chambers(file: &Path) -> anyhow::Result<Vec<Chamber>> {
    let shown = file.display();
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_path(file)
        .with_context(|| format!("cannot read {shown}"))?;
    let headers = reader.headers().with_context(|| format!("{shown}, line 1"))?.clone();
    let column = |name: &str| headers.iter().position(|header| header == name);
    let (Some(tool), Some(chamber)) = (column("tool_id"), column("chamber_id")) else {
        let found: Vec<&str> = headers.iter().collect();
        bail!("{shown}, line 1: the header needs tool_id and chamber_id; it has {}", found.join(", "));
    };
    let (mut chambers, mut seen) = (Vec::new(), BTreeSet::new());
    for record in reader.records() {
        let record = record.with_context(|| format!("{shown} is not CSV"))?;
        let line = record.position().map_or(0, csv::Position::line);
        let found = Chamber::new(&record[tool], &record[chamber])
            .map_err(|error| anyhow!("{shown}, line {line}: {error}"))?;
        if seen.insert(found.clone()) {
            chambers.push(found);
        }
    }
    if chambers.is_empty() {
        bail!("{shown} has no chambers below its header");
    }
    Ok(chambers)
}

/// Every chart of the file.
fn meaning(strategy: &Strategy) -> Table {
    let mut table = Table::new(&["tools", "chambers", "chart", "equation", "limits", "rules"]);
    for (tools, chambers, charts) in strategy.groups() {
        for chart in charts {
            let equation = chart.equation.text().split_whitespace().collect::<Vec<_>>().join(" ");
            let cells = [
                tools.clone(),
                chambers.clone(),
                chart.name.to_string(),
                equation,
                chart.limits.to_string(),
                rules(chart),
            ];
            table.row(cells);
        }
    }
    table
}

/// The rules by severity, worst first.
fn rules(chart: &Chart) -> String {
    let mut severities: Vec<_> = chart.rules.iter().map(|rule| rule.severity).collect();
    severities.sort_unstable();
    severities.dedup();
    let parts = severities.iter().rev().map(|severity| {
        let of = chart.rules.iter().filter(|rule| rule.severity == *severity);
        let names: Vec<&str> = of.map(|rule| rule.check.name()).collect();
        format!("{}: {}", format!("{severity:?}").to_lowercase(), names.join(" "))
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// Which charts each chamber gets.
fn explanation(strategy: &Strategy, chambers: &[Chamber]) -> Table {
    let mut table = Table::new(&["chamber", "charts", "names", "SVIDs"]);
    for chamber in chambers {
        let charts = strategy.charts_for(chamber);
        let names: Vec<&str> = charts.iter().map(|chart| &*chart.name).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
        table.row([chamber.to_string(), charts.len().to_string(), names, charts.svids().join(" ")]);
    }
    table
}
