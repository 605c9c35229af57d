//! `phalanx assignments`: who owns which chamber.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;

use super::show::{counted, field, list};
use super::table::Table;
use crate::client::{OutputArgs, ServiceArgs};

/// Shows who owns which chamber.
#[derive(Args)]
pub(crate) struct Assignments {
    /// Only those of the defender that is asked.
    #[arg(long)]
    own: bool,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Assignments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.service.client()?;
        let answer = client.get(&format!("/api/v1/assignments?all={}", !self.own))?;
        if self.output.json {
            super::show::json(&answer)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["tool", "chamber", "weight", "defender"]);
        for one in list(&answer, "chambers") {
            table.row(["toolId", "chamberId", "weight", "defenderId"].map(|name| field(one, name)));
        }
        writeln!(
            io::stdout(),
            "{table}\n\n{} by map {}",
            counted(list(&answer, "chambers").len() as u64, "chamber"),
            field(&answer, "version")
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
