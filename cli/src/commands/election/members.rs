//! `phalanx election members` and `remove`: who belongs to the set.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use phalanx_election::proto::Member;

use super::Place;
use crate::commands::table::Table;

/// Shows the nodes that belong to an agent, as its leader knows them.
#[derive(Args)]
pub(super) struct Members {
    #[command(flatten)]
    place: Place,
}

/// Takes a node out of an agent.
///
/// A node comes in by itself: start it with --join and an empty folder.
#[derive(Args)]
pub(super) struct Remove {
    /// The number of the node.
    node_id: u64,

    #[command(flatten)]
    place: Place,
}

impl Members {
    pub(super) fn run(self) -> Result<ExitCode> {
        let nodes = self.place.ask(async |client| Ok(client.status().await))?;
        let mut reasons = Vec::new();
        let mut best = None;
        for (_, status) in nodes {
            match status {
                Ok(status) if status.role == "leader" || best.is_none() => best = Some(status),
                Ok(_) => {}
                Err(error) => reasons.push(error.reason().to_owned()),
            }
        }
        let Some(status) = best else { bail!("no election agent answers at {}", reasons.join(", ")) };
        print(&status.members)
    }
}

impl Remove {
    pub(super) fn run(self) -> Result<ExitCode> {
        let Self { node_id, place } = self;
        let members = place.ask(async |client| Ok(client.remove_member(node_id).await?))?;
        print(&members)
    }
}

fn print(members: &[Member]) -> Result<ExitCode> {
    let mut table = Table::new(&["node", "address", "votes", "has the log up to"]);
    for member in members {
        table.row([
            member.node_id.to_string(),
            member.address.clone(),
            if member.voter { "yes" } else { "no" }.to_owned(),
            member.matched_index.map_or_else(|| "-".to_owned(), |index| index.to_string()),
        ]);
    }
    writeln!(io::stdout().lock(), "{table}")?;
    Ok(ExitCode::SUCCESS)
}
