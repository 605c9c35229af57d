//! One alarm.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use phalanx_terminal::ColorRole;

use crate::client::{OutputArgs, ServiceArgs, path};
use crate::commands::show::{self, field, when};

/// Shows one alarm in full.
#[derive(Args)]
pub(super) struct Show {
    /// Its id, as the list says.
    #[arg(value_name = "ALARM")]
    id: String,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Show {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let alarm = self.service.client()?.get(&path("/api/v1/alarms", &[&self.id]))?;
        if self.output.json {
            show::json(&alarm)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut out = io::stdout().lock();
        let severity = field(&alarm, "severity");
        writeln!(
            out,
            "{} alarm {}, {}",
            ColorRole::of_severity(&severity).apply(&severity),
            field(&alarm, "alarmId"),
            field(&alarm, "state")
        )?;
        writeln!(out, "{}", field(&alarm, "message"))?;
        writeln!(
            out,
            "raised by run {} of {}:{} at {}: chart {}, rule {}, value {}, limit {}",
            field(&alarm, "contextId"),
            field(&alarm, "toolId"),
            field(&alarm, "chamberId"),
            when(&alarm, "raisedAt"),
            field(&alarm, "indicator"),
            field(&alarm, "rule"),
            field(&alarm, "value"),
            field(&alarm, "limit"),
        )?;
        let said = &alarm["acknowledgement"];
        if !said.is_null() {
            let (by, at, comment) = (field(said, "by"), when(said, "at"), field(said, "comment"));
            writeln!(out, "acknowledged by {by} at {at}: {comment}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
