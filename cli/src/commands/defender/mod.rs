#[cfg(test)]
mod doorbells_test;
mod plan;
mod run;

use std::process::ExitCode;

use clap::Args;

use plan::Plan;

use crate::settings::variables::Variables;

/// Runs a defender: it joins the fleet at NATS, or works alone in a data folder.
///
/// Alone it needs nothing but a folder with a strategy file:
///
///   phalanx defender --data-dir FOLDER --strategy-file FILE
///
/// Every flag is also an environment variable.
#[derive(Args)]
pub(crate) struct Defender {
    #[command(flatten)]
    variables: Variables,

    /// Leave when standard input ends: for whoever starts defenders and wants none of them to outlive it.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

impl Defender {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match Plan::new(&self.variables) {
            Ok(plan) => run::run(plan, self.until_stdin_ends),
            Err(wrong) => {
                eprintln!("error: the defender cannot start:");
                for line in wrong {
                    eprintln!("  - {line}");
                }
                Ok(ExitCode::from(2))
            }
        }
    }
}
