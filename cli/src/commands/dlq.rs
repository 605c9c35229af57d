//! `phalanx dlq`: messages that were given up.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::show::{self, field, list, when};
use super::table::Table;
use crate::client::{OutputArgs, ServiceArgs, path, query};

/// Lists, shows, replays and drops dead letters: messages that were given up.
#[derive(Args)]
pub(crate) struct Dlq {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists them, the newest first.
    List {
        /// Only of this tool's chamber.
        #[arg(long, requires = "chamber")]
        tool: Option<String>,
        /// Only of this chamber.
        #[arg(long, requires = "tool")]
        chamber: Option<String>,
        /// How many at most.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        service: ServiceArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Shows one in full, with the message itself.
    Show {
        /// Which, as the list says.
        #[arg(value_name = "LETTER")]
        id: String,
        #[command(flatten)]
        service: ServiceArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Sends messages to their chambers again, behind everything that waits there.
    Replay(Which),
    /// Puts letters away for good. Their runs stay unprocessed.
    Drop(Which),
}

#[derive(Args)]
struct Which {
    /// Which, as the list says.
    #[arg(value_name = "LETTER", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Dlq {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::List { tool, chamber, limit, service, output } => {
                let parameters = [("tool", tool), ("chamber", chamber), ("limit", Some(limit.to_string()))];
                let answer = service.client()?.get(&query("/api/v1/dlq", &parameters))?;
                if output.json { show::json(&answer)? } else { print(&answer)? }
            }
            Command::Show { id, service, output } => {
                let letter = service.client()?.get(&path("/api/v1/dlq", &[&id]))?;
                if output.json { show::json(&letter)? } else { print_one(&letter)? }
            }
            Command::Replay(which) => {
                let client = which.service.client()?;
                let replay = |id: &str| client.post(&(path("/api/v1/dlq", &[id]) + "/replay"), &Value::Null);
                which.each("is sent again", replay)?;
            }
            Command::Drop(which) => {
                let client = which.service.client()?;
                which.each("is dropped", |id| client.delete(&path("/api/v1/dlq", &[id])))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Which {
    /// One after the other; it ends at the first that cannot be done.
    fn each(&self, done: &str, mut act: impl FnMut(&str) -> anyhow::Result<Value>) -> anyhow::Result<()> {
        let mut answers = Vec::new();
        for id in &self.ids {
            answers.push(act(id)?);
            if !self.output.json {
                writeln!(io::stdout(), "{id} {done}")?;
            }
        }
        if self.output.json {
            show::json(&Value::Array(answers))?;
        }
        Ok(())
    }
}

fn print(answer: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let letters = list(answer, "deadLetters");
    if letters.is_empty() {
        return writeln!(out, "no dead letters");
    }
    let mut table = Table::new(&["letter", "died", "attempts", "run", "reason"]);
    for letter in letters {
        let [id, attempts, context, reason] =
            ["id", "attempts", "contextId", "reason"].map(|name| field(letter, name));
        table.row([id, when(letter, "diedAt"), attempts, context, reason]);
    }
    writeln!(out, "{table}")?;
    match answer["total"].as_u64().unwrap_or_default() as usize {
        total if total > letters.len() => {
            writeln!(out, "\n{} of {total}: name a larger --limit", letters.len())
        }
        _ => Ok(()),
    }
}

fn print_one(letter: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{}: run {} was given up at {} after {} attempts",
        field(letter, "id"),
        field(letter, "contextId"),
        when(letter, "diedAt"),
        field(letter, "attempts")
    )?;
    writeln!(out, "{}", field(letter, "reason"))?;
    writeln!(out, "the message of {}:\n{:#}", when(letter, "storedAt"), letter["original"])
}
