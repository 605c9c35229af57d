//! `phalanx schema`: the tables of Cassandra.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use phalanx_defender::store::Cassandra;
use phalanx_defender::store::cassandra::{Applied, KEYSPACE, Replication, show};

use crate::cassandra::CassandraArgs;
use crate::waiting::Waiting;

/// Makes or shows the tables of Cassandra, where a fleet keeps its charts.
#[derive(Args)]
pub(crate) struct Schema {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes the keyspace and the tables where they are missing.
    ///
    /// Again it does nothing. What is there and differs is refused, both sides shown, and nothing is made.
    Apply {
        #[command(flatten)]
        cassandra: CassandraArgs,
        /// How many copies: `3` in every data centre (that is what is taken for a new keyspace), or `dc1=3,dc2=3`.
        #[arg(long, value_name = "COPIES")]
        replication: Option<Replication>,
    },
    /// Prints the statements that make them. Needs no server.
    Show {
        /// The keyspace.
        #[arg(long, env = "CASSANDRA_KEYSPACE", default_value = KEYSPACE)]
        keyspace: String,
        /// How many copies: `3` in every data centre, or `dc1=3,dc2=3`.
        #[arg(long, value_name = "COPIES", default_value = "3")]
        replication: Replication,
    },
}

impl Schema {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Show { keyspace, replication } => {
                io::stdout().write_all(show(&keyspace, &replication)?.as_bytes())?;
            }
            Command::Apply { cassandra, replication } => {
                let config = cassandra.config()?;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let waiting = Waiting::until(format!("tables in keyspace {}", config.keyspace));
                let applied = runtime.block_on(Cassandra::apply(&config, replication.as_ref()));
                drop(waiting);
                let applied =
                    applied.with_context(|| format!("keyspace {} on {}", config.keyspace, config.hosts))?;
                let what = match applied {
                    Applied::Made => "made",
                    Applied::AlreadyThere => "already there",
                };
                writeln!(io::stdout(), "keyspace {} on {}: {what}", config.keyspace, config.hosts)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
