//! Charts begin anew.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use phalanx_defender::app::random_hex;
use serde_json::json;

use crate::client::{OutputArgs, ServiceArgs, path};
use crate::commands::show;

/// Tells charts of a chamber to learn their limits anew, in order with its runs.
#[derive(Args)]
pub(super) struct Rebaseline {
    tool: String,
    chamber: String,
    /// Which charts; all of the chamber where none is named.
    #[arg(value_name = "INDICATOR")]
    indicators: Vec<String>,
    /// Names this command: sent again under the same name, it takes effect once. Random otherwise.
    #[arg(long, value_name = "ID")]
    context: Option<String>,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Rebaseline {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.service.client()?;
        let context = self.context.unwrap_or_else(|| format!("rebaseline-{}", random_hex()));
        let mut command = json!({ "contextId": context });
        if !self.indicators.is_empty() {
            command["charts"] = json!(self.indicators);
        }
        let path = path("/api/v1/charts", &[&self.tool, &self.chamber]) + "/rebaseline";
        let answer = client.post(&path, &command)?;
        if self.output.json {
            show::json(&answer)?;
        } else {
            let which = match self.indicators.is_empty() {
                true => "all charts".to_owned(),
                false => self.indicators.join(", "),
            };
            let (tool, chamber) = (&self.tool, &self.chamber);
            writeln!(
                io::stdout(),
                "{which} of {tool}:{chamber} will learn anew, after the runs that wait there"
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
