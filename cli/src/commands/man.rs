//! `phalanx man`: manual pages.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

/// Writes the manual pages, one for each command.
#[derive(Args)]
pub(crate) struct Man {
    /// Where to, such as ~/.local/share/man/man1; it is made where it is not there.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let folder = self.folder.display();
        std::fs::create_dir_all(&self.folder).with_context(|| format!("{folder} cannot be made"))?;
        clap_mangen::generate_to(crate::Cli::command(), &self.folder)
            .with_context(|| format!("the pages cannot be written into {folder}"))?;
        writeln!(io::stdout(), "{folder} has the pages; `man {folder}/phalanx.1` shows the first")?;
        Ok(ExitCode::SUCCESS)
    }
}
