//! `phalanx charts`: control charts in the terminal.

mod rebaseline;
mod show;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Shows control charts, and tells them to learn their limits anew.
#[derive(Args)]
pub(crate) struct Charts {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Show(show::Show),
    Rebaseline(rebaseline::Rebaseline),
}

impl Charts {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Show(show) => show.run(),
            Command::Rebaseline(rebaseline) => rebaseline.run(),
        }
    }
}
