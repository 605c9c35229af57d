//! Chambers, as a running defender knows them.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;

use crate::client::{OutputArgs, ServiceArgs, path};
use crate::commands::show::{self, counted, field, list, text, when};
use crate::commands::table::Table;

/// Lists the chambers, their weights and owners.
#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl List {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let answer = self.service.client()?.get("/api/v1/chambers")?;
        if self.output.json {
            show::json(&answer)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["tool", "chamber", "weight", "defender", "SVIDs", "Hz", "seconds"]);
        for one in list(&answer, "chambers") {
            let fields = [
                "toolId",
                "chamberId",
                "weight",
                "defenderId",
                "svidCount",
                "collectionFreqHz",
                "contextDurationSeconds",
            ];
            table.row(fields.map(|name| field(one, name)));
        }
        writeln!(io::stdout(), "{table}\n\n{}", counted(list(&answer, "chambers").len() as u64, "chamber"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Shows one chamber: owner, charts, alarms, and its last run.
#[derive(Args)]
pub(super) struct Show {
    tool: String,
    chamber: String,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Show {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let answer = self.service.client()?.get(&path("/api/v1/chambers", &[&self.tool, &self.chamber]))?;
        if self.output.json {
            show::json(&answer)?;
            return Ok(ExitCode::SUCCESS);
        }
        let (last, cursor) = (&answer["lastRun"], &answer["cursor"]);
        let charts: Vec<String> = list(&answer, "indicators").iter().map(text).collect();
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{}:{} is served by {} and weighs {}",
            self.tool,
            self.chamber,
            field(&answer, "defenderId"),
            field(&answer, "weight")
        )?;
        writeln!(
            out,
            "{} SVIDs at {} Hz for {} s",
            field(&answer, "svidCount"),
            field(&answer, "collectionFreqHz"),
            field(&answer, "contextDurationSeconds")
        )?;
        writeln!(
            out,
            "last run: {} at {}, {}",
            field(last, "contextId"),
            when(last, "timestamp"),
            field(last, "outcome")
        )?;
        writeln!(
            out,
            "committed up to {}-{}, {} failures and {} deaths at the next message",
            field(cursor, "generation"),
            field(cursor, "sequence"),
            field(cursor, "failures"),
            field(cursor, "deaths")
        )?;
        writeln!(out, "open alarms: {}", field(&answer, "openAlarms"))?;
        writeln!(
            out,
            "charts: {}",
            if charts.is_empty() { "none yet".to_owned() } else { charts.join(", ") }
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
