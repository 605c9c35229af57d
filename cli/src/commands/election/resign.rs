//! `phalanx election resign`: asks a leader to make room.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::{Place, seconds};

/// Asks the leader of an election to resign.
///
/// It is not renewed any more, and the election is vacant when its term is over: until then the leader may still act, so
/// nobody else leads before.
#[derive(Args)]
pub(super) struct Resign {
    /// The election; for one of another kind than default, KIND/ELECTION.
    election: String,

    /// Only if this one leads.
    #[arg(long, value_name = "NAME", default_value = "")]
    leader: String,

    #[command(flatten)]
    place: Place,
}

impl Resign {
    pub(super) fn run(self) -> Result<ExitCode> {
        let Self { election, leader, place } = self;
        let ended = place.ask(async |client| Ok(client.end(&election, &leader).await?))?;
        writeln!(
            io::stdout().lock(),
            "{} leads {election} for {} more and is not renewed",
            ended.leader,
            seconds(ended.expires_in)
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
