//! `phalanx strategy`: looks at strategy files.

mod check;

use std::process::ExitCode;

use clap::Subcommand;

/// Checks strategy files: which chambers get which charts, and what judges them.
#[derive(Subcommand)]
pub(crate) enum Strategy {
    Check(check::Check),
}

impl Strategy {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check(check) => check.run(),
        }
    }
}
