//! `phalanx election status`: how the nodes are.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use phalanx_terminal::ColorRole;
use serde_json::json;

use super::Place;
use crate::client::OutputArgs;
use crate::commands::table::Table;

/// Shows what the nodes of an agent are doing, each asked by itself.
#[derive(Args)]
pub(super) struct Status {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    output: OutputArgs,
}

impl Status {
    pub(super) fn run(self) -> Result<ExitCode> {
        let nodes = self.place.ask(async |client| Ok(client.status().await))?;
        if nodes.iter().all(|(_, status)| status.is_err()) {
            let reasons = nodes.iter().filter_map(|(_, status)| status.as_ref().err());
            let reasons: Vec<&str> = reasons.map(phalanx_election::client::Error::reason).collect();
            bail!(
                "no election agent answers at {}. Is one running? Otherwise start one with `phalanx election-agent`, or name \
                 another with --addr or ELECTION_AGENT_ADDR",
                reasons.join(", ")
            );
        }
        if self.output.json {
            let nodes = nodes.iter().map(|(address, status)| match status {
                Ok(status) => json!({
                    "address": address,
                    "nodeId": status.node_id,
                    "version": status.version,
                    "role": status.role,
                    "leaderId": (status.leader_id != 0).then_some(status.leader_id),
                    "term": status.term,
                    "lastLogIndex": status.last_log_index,
                    "appliedIndex": status.applied_index,
                    "snapshotIndex": status.snapshot_index,
                    "elections": status.elections,
                    "leases": status.leases,
                }),
                Err(error) => json!({ "address": address, "error": error.reason() }),
            });
            crate::commands::show::json(&json!(nodes.collect::<Vec<_>>()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&[
            "address",
            "node",
            "role",
            "leader",
            "term",
            "log",
            "applied",
            "elections",
            "leases",
        ]);
        let mut reasons = Vec::new();
        for (address, status) in nodes {
            match status {
                Ok(now) => table.row([
                    address,
                    now.node_id.to_string(),
                    now.role,
                    if now.leader_id == 0 { "none".to_owned() } else { now.leader_id.to_string() },
                    now.term.to_string(),
                    now.last_log_index.to_string(),
                    now.applied_index.to_string(),
                    now.elections.to_string(),
                    now.leases.to_string(),
                ]),
                Err(error) => {
                    table.styled_row(ColorRole::Warning, [address, "-".to_owned(), "no answer".to_owned()]);
                    reasons.push(error.reason().to_owned());
                }
            }
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{table}")?;
        for reason in reasons {
            writeln!(out, "no answer from {reason}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
