//! One command per file.

mod chambers;
mod defender;
mod demo;
mod etl;
mod fsm;
mod ingest;
mod local;
mod mebo;
mod plan;
mod schema;
mod sim;
mod spc;
mod strategy;
mod table;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, made once")]
pub(crate) enum Command {
    Defender(Box<defender::Defender>),
    Chambers(chambers::Chambers),
    Demo(demo::Demo),
    Etl(etl::Etl),
    Fsm(fsm::Fsm),
    Ingest(ingest::Ingest),
    Plan(plan::Plan),
    Schema(schema::Schema),
    Sim(sim::Sim),
    #[command(subcommand)]
    Spc(spc::Spc),
    Mebo(mebo::Mebo),
    #[command(subcommand)]
    Strategy(strategy::Strategy),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Defender(defender) => defender.run(),
            Self::Chambers(chambers) => chambers.run(),
            Self::Demo(demo) => demo.run(),
            Self::Etl(etl) => etl.run(),
            Self::Fsm(fsm) => fsm.run(),
            Self::Ingest(ingest) => ingest.run(),
            Self::Plan(plan) => plan.run(),
            Self::Schema(schema) => schema.run(),
            Self::Sim(sim) => sim.run(),
            Self::Spc(spc) => spc.run(),
            Self::Mebo(mebo) => mebo.run(),
            Self::Strategy(strategy) => strategy.run(),
        }
    }
}
