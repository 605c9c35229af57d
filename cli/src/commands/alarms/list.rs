//! The list of alarms.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use phalanx_terminal::ColorRole;

use crate::client::{OutputArgs, ServiceArgs, query};
use crate::commands::show::{self, field, list, when};
use crate::commands::table::Table;

/// Lists alarms, the newest first.
#[derive(Args)]
pub(super) struct List {
    /// Only of this tool's chamber.
    #[arg(long, requires = "chamber")]
    tool: Option<String>,
    /// Only of this chamber.
    #[arg(long, requires = "tool")]
    chamber: Option<String>,
    /// Only those that stand so.
    #[arg(long, value_parser = ["open", "acknowledged", "cleared"])]
    state: Option<String>,
    /// Only those that are so bad.
    #[arg(long, value_parser = ["info", "warning", "critical"])]
    severity: Option<String>,
    /// Raised since this time, such as 2026-01-31T10:30:45Z; the last 7 days otherwise.
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl List {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let path = query(
            "/api/v1/alarms",
            &[
                ("tool", self.tool),
                ("chamber", self.chamber),
                ("state", self.state),
                ("severity", self.severity),
                ("since", self.since.map(|since| since.to_string())),
                ("limit", Some(self.limit.to_string())),
            ],
        );
        let answer = self.service.client()?.get(&path)?;
        if self.output.json {
            show::json(&answer)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut out = io::stdout().lock();
        let alarms = list(&answer, "alarms");
        if alarms.is_empty() {
            writeln!(out, "no alarms")?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["alarm", "raised", "severity", "state", "chamber", "what"]);
        for alarm in alarms {
            let severity = field(alarm, "severity");
            let paint = match alarm["state"] == "cleared" {
                true => ColorRole::Faint,
                false => ColorRole::of_severity(&severity),
            };
            table.styled_row(
                paint,
                [
                    field(alarm, "alarmId"),
                    when(alarm, "raisedAt"),
                    severity,
                    field(alarm, "state"),
                    format!("{}:{}", field(alarm, "toolId"), field(alarm, "chamberId")),
                    field(alarm, "message"),
                ],
            );
        }
        writeln!(out, "{table}")?;
        if !answer["next"].is_null() {
            writeln!(out, "\nthere are more: name a larger --limit, or a chamber")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
