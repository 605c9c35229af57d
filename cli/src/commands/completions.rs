//! `phalanx completions`: for shells.

use std::io;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

/// Prints the completions for a shell.
///
/// For bash: phalanx completions bash > ~/.local/share/bash-completion/completions/phalanx
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "phalanx", &mut text);
        io::Write::write_all(&mut io::stdout(), &text)?;
        Ok(ExitCode::SUCCESS)
    }
}
