//! One command per file.

mod demo;
mod etl;
mod fsm;
mod plan;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Etl(etl::Etl),
    Fsm(fsm::Fsm),
    Plan(plan::Plan),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Demo(demo) => demo.run(),
            Self::Etl(etl) => etl.run(),
            Self::Fsm(fsm) => fsm.run(),
            Self::Plan(plan) => plan.run(),
        }
    }
}
