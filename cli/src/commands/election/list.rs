//! `phalanx election list`: who leads what.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::{Place, seconds};
use crate::client::OutputArgs;
use crate::commands::table::Table;

/// Shows every election that there ever was, and who leads it.
#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    output: OutputArgs,
}

impl List {
    pub(super) fn run(self) -> Result<ExitCode> {
        let elections = self.place.ask(async |client| Ok(client.list().await?))?;
        if self.output.json {
            let elections = elections.iter().map(|one| {
                json!({
                    "election": one.election,
                    "leader": (!one.leader.is_empty()).then_some(&one.leader),
                    "epoch": one.epoch,
                    "renewals": one.renewals,
                    "revision": one.revision,
                    "ending": one.ending,
                    "expiresInSeconds": one
                        .expires_in
                        .and_then(|left| std::time::Duration::try_from(left).ok())
                        .map(|left| left.as_secs_f64()),
                })
            });
            crate::commands::show::json(&json!(elections.collect::<Vec<_>>()))?;
            return Ok(ExitCode::SUCCESS);
        }
        if elections.is_empty() {
            writeln!(io::stdout().lock(), "there was no election yet")?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["election", "leader", "epoch", "renewals", "expires in", ""]);
        for one in elections {
            let leader = if one.leader.is_empty() { "nobody".to_owned() } else { one.leader };
            let note = if one.ending { "asked to resign" } else { "" };
            table.row([
                one.election,
                leader,
                one.epoch.to_string(),
                one.renewals.to_string(),
                seconds(one.expires_in),
                note.to_owned(),
            ]);
        }
        writeln!(io::stdout().lock(), "{table}")?;
        Ok(ExitCode::SUCCESS)
    }
}
