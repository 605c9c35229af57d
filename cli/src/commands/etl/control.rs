//! `phalanx etl start`, `pause`, `resume`, `stop`: steering a service.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::client::Place;
use super::print;

#[derive(Args)]
pub(super) struct Control {
    /// Providers, such as cve.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,

    /// All providers.
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    place: Place,

    /// The service's token.
    #[arg(long, value_name = "TOKEN", env = "API_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Control {
    /// Gives the command to each; the exit code is 1 when one of them refuses.
    pub(super) fn run(self, command: &str) -> anyhow::Result<ExitCode> {
        let ids = if self.all { vec!["all".to_owned()] } else { self.ids.clone() };
        let service = self.place.client(self.token.clone())?;
        let mut failed = false;
        for id in ids {
            let path = format!("/api/v1/etl/providers/{id}/{command}");
            let done = service.post(&path, &Value::Null);
            // One that refuses keeps nobody from asking the others.
            match done {
                Ok(done) if self.json => print(done)?,
                Ok(done) => self.show(command, &done)?,
                Err(error) if self.ids.len() > 1 => {
                    failed = true;
                    eprintln!("phalanx: {error:#}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn show(&self, command: &str, done: &Value) -> anyhow::Result<()> {
        let list = |name: &str| done[name].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for one in list("accepted") {
            let needed = match one["needed_by"].as_str() {
                Some(by) => format!(", which {by} needs"),
                None => String::new(),
            };
            print(format_args!("{command} {}{needed}", text(&one["provider"])))?;
        }
        for one in list("pending") {
            print(format_args!("{command} {}: after the batch it is busy with", text(&one)))?;
        }
        for one in list("refused") {
            eprintln!("{}: {}", text(&one["provider"]), text(&one["why"]));
        }
        if list("accepted").is_empty() && list("pending").is_empty() {
            eprintln!("nobody took it");
        }
        Ok(())
    }
}
