//! `phalanx chambers`: which chambers there are, what they weigh, how far they are.

mod import;
mod list;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Says which chambers there are, how much each has to do, and how far it is.
#[derive(Args)]
pub(crate) struct Chambers {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, made once")]
enum Command {
    List(list::List),
    Show(list::Show),
    Import(import::Import),
}

impl Chambers {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::List(list) => list.run(),
            Command::Show(show) => show.run(),
            Command::Import(import) => import.run(),
        }
    }
}
