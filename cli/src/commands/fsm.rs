use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use phalanx_cluster::core::{CalculatorState, WorkerState};
use phalanx_etl::{MacroState, ProviderState};
use phalanx_fsm::{State, render};

/// Prints a state machine: its states, their codes, and where each may go.
#[derive(Args)]
pub(crate) struct Fsm {
    machine: Machine,

    /// How to print it.
    #[arg(long, default_value = "table")]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Machine {
    /// The life of a worker.
    Worker,
    /// What the leader's calculator is doing.
    Calculator,
    /// The orchestrator of the ETL engine.
    Macro,
    /// One provider of the ETL engine.
    Provider,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// A Mermaid state diagram.
    Mermaid,
    /// A table (Markdown).
    Table,
    /// One JSON object.
    Json,
}

impl Fsm {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let text = match self.machine {
            Machine::Worker => print::<WorkerState>(self.format),
            Machine::Calculator => print::<CalculatorState>(self.format),
            Machine::Macro => print::<MacroState>(self.format),
            Machine::Provider => print::<ProviderState>(self.format),
        };
        writeln!(io::stdout(), "{}", text.trim_end())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print<S: State>(format: Format) -> String {
    match format {
        Format::Mermaid => render::mermaid(S::MACHINE),
        Format::Table => render::table(S::MACHINE),
        Format::Json => render::json(S::MACHINE),
    }
}
