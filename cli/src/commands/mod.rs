//! One command per file.

mod alarms;
mod assignments;
mod chambers;
mod charts;
mod collector;
mod completions;
mod defender;
mod demo;
mod dlq;
mod election;
mod election_agent;
mod etl;
mod fsm;
mod ingest;
mod man;
mod mebo;
mod plan;
mod scale;
mod schema;
mod show;
mod sim;
mod spc;
mod status;
mod strategy;
mod table;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, made once")]
pub(crate) enum Command {
    Defender(Box<defender::Defender>),
    Status(status::Status),
    Assignments(assignments::Assignments),
    Chambers(chambers::Chambers),
    Charts(charts::Charts),
    Alarms(alarms::Alarms),
    Dlq(dlq::Dlq),
    Scale(scale::Scale),
    #[command(name = "collector")]
    Collector(collector::CollectorCommand),
    Demo(demo::Demo),
    Election(election::Election),
    ElectionAgent(Box<election_agent::ElectionAgent>),
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
    Completions(completions::Completions),
    Man(man::Man),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Defender(defender) => defender.run(),
            Self::Status(status) => status.run(),
            Self::Assignments(assignments) => assignments.run(),
            Self::Chambers(chambers) => chambers.run(),
            Self::Charts(charts) => charts.run(),
            Self::Alarms(alarms) => alarms.run(),
            Self::Dlq(dlq) => dlq.run(),
            Self::Scale(scale) => scale.run(),
            Self::Collector(collector) => collector.run(),
            Self::Demo(demo) => demo.run(),
            Self::Election(election) => election.run(),
            Self::ElectionAgent(agent) => agent.run(),
            Self::Etl(etl) => etl.run(),
            Self::Fsm(fsm) => fsm.run(),
            Self::Ingest(ingest) => ingest.run(),
            Self::Plan(plan) => plan.run(),
            Self::Schema(schema) => schema.run(),
            Self::Sim(sim) => sim.run(),
            Self::Spc(spc) => spc.run(),
            Self::Mebo(mebo) => mebo.run(),
            Self::Strategy(strategy) => strategy.run(),
            Self::Completions(completions) => completions.run(),
            Self::Man(man) => man.run(),
        }
    }
}
