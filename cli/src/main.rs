//! The `phalanx` binary: arguments in, library calls, exit code.

mod cassandra;
mod client;
mod commands;
mod settings;
mod target;
mod waiting;

use std::io;
use std::process::ExitCode;

use clap::Parser;

/// Keeps thousands of units of work spread over a fleet of workers, and the applications that stand on that.
#[derive(Parser)]
#[command(name = "phalanx", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    // Wrong use ends here, with clap's explanation and exit code 2.
    match Cli::parse().command.run() {
        Ok(code) => code,
        // Whoever reads our output may stop when it has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("phalanx: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
