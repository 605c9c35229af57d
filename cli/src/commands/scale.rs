//! `phalanx scale`: how many defenders there should be.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::client::{OutputArgs, ServiceArgs};

/// Says for the whole fleet how many defenders there should be. Surplus ones stand by.
#[derive(Args)]
pub(crate) struct Scale {
    /// How many. It wins over FLEET_SIZE of the defenders.
    #[arg(value_name = "N", required_unless_present = "unset")]
    size: Option<u32>,

    /// Leave it to FLEET_SIZE again.
    #[arg(long, conflicts_with = "size")]
    unset: bool,

    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Scale {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.service.client()?;
        let answer = client.post("/api/v1/scale", &json!({ "fleetSize": self.size }))?;
        match (self.output.json, self.size) {
            (true, _) => super::show::json(&answer)?,
            (_, Some(size)) => writeln!(io::stdout(), "the fleet should have {size} defenders")?,
            (_, None) => writeln!(io::stdout(), "the size of the fleet is left to FLEET_SIZE")?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
