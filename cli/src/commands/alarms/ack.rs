//! A person has seen an alarm.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::client::{OutputArgs, ServiceArgs, path};
use crate::commands::show;

/// Notes that a person has seen an alarm.
#[derive(Args)]
pub(super) struct Ack {
    /// Its id, as the list says.
    #[arg(value_name = "ALARM")]
    id: String,
    /// Who has seen it.
    #[arg(long, env = "USER", value_name = "NAME")]
    by: String,
    /// What there is to say.
    #[arg(long, default_value = "", hide_default_value = true)]
    comment: String,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Ack {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.service.client()?;
        let path = path("/api/v1/alarms", &[&self.id]) + "/ack";
        let answer = client.post(&path, &json!({ "by": self.by, "comment": self.comment }))?;
        match self.output.json {
            true => show::json(&answer)?,
            false => writeln!(io::stdout(), "alarm {} is acknowledged by {}", self.id, self.by)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
