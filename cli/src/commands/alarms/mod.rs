//! `phalanx alarms`: what was found, and what people said of it.

mod ack;
mod list;
mod show;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Lists, shows and acknowledges alarms.
#[derive(Args)]
pub(crate) struct Alarms {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(list::List),
    Show(show::Show),
    Ack(ack::Ack),
}

impl Alarms {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::List(list) => list.run(),
            Command::Show(show) => show.run(),
            Command::Ack(ack) => ack.run(),
        }
    }
}
