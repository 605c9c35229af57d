//! One command per file.

mod demo;
mod fsm;
mod mebo;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Fsm(fsm::Fsm),
    Mebo(mebo::Mebo),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Demo(demo) => demo.run(),
            Self::Fsm(fsm) => fsm.run(),
            Self::Mebo(mebo) => mebo.run(),
        }
    }
}
