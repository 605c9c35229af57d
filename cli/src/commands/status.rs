//! `phalanx status`: what a defender and its fleet are doing.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use phalanx_terminal::ColorRole;
use serde_json::{Value, json};

use super::show::{counted, field, list, text};
use super::table::Table;
use crate::client::{OutputArgs, ServiceArgs};

/// Shows what a defender is doing, and the fleet as it sees it.
#[derive(Args)]
pub(crate) struct Status {
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Status {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.service.client()?;
        let worker = client.get("/api/v1/status")?;
        let ready = client.probe("/health/ready")?;
        // A worker that has not started yet knows no fleet.
        let fleet = client.get("/api/v1/cluster").unwrap_or(Value::Null);
        if self.output.json {
            super::show::json(&json!({ "worker": worker, "ready": ready, "cluster": fleet }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut out = io::stdout().lock();
        let state = field(&worker, "state");
        writeln!(
            out,
            "{} ({}) at {}: {}, {}, up {} s",
            field(&worker, "defenderId"),
            field(&worker, "podName"),
            client.base(),
            ColorRole::of_state(&state).apply(&state),
            field(&ready, "status"),
            field(&worker, "uptimeSeconds"),
        )?;
        let hits = worker["cacheHitRate"].as_f64().unwrap_or_default();
        writeln!(
            out,
            "{}, {} processed, {:.0} % from the cache",
            counted(worker["assignedChambers"].as_u64().unwrap_or_default(), "chamber"),
            counted(worker["messagesProcessed"].as_u64().unwrap_or_default(), "message"),
            100.0 * hits,
        )?;
        if ready["status"] != "ready" {
            writeln!(out, "{}", ColorRole::Warning.apply(&format!("not ready: {ready}")))?;
        }
        if !fleet.is_null() {
            print_fleet(&mut out, &fleet)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_fleet(out: &mut impl io::Write, fleet: &Value) -> io::Result<()> {
    let size = fleet["fleetSize"]
        .as_u64()
        .map_or(String::new(), |size| format!(", {} wanted", counted(size, "defender")));
    let state = field(fleet, "state");
    writeln!(
        out,
        "\nfleet: {}, map {} ({}){size}",
        ColorRole::of_state(&state).apply(&state),
        field(fleet, "mapVersion"),
        field(fleet, "lifecycleState"),
    )?;
    if let Some(left) = fleet["window"]["remainingSeconds"].as_f64() {
        writeln!(out, "a {} window is open for {left:.1} s more", text(&fleet["window"]["kind"]))?;
    }
    let mut table =
        Table::new(&["defender", "pod", "state", "role", "chambers", "weight", "processed", "heard"]);
    for member in list(fleet, "workers") {
        let role = match (member["standby"] == true, member["isLeader"] == true) {
            (true, _) => "standby",
            (_, true) => "leader",
            _ => "follower",
        };
        let state = field(member, "state");
        let age = member["heartbeatAgeSeconds"].as_f64().unwrap_or_default();
        table.styled_row(
            if role == "standby" { ColorRole::Plain } else { ColorRole::of_state(&state) },
            [
                field(member, "defenderId"),
                field(member, "podName"),
                state,
                role.to_owned(),
                field(member, "chambers"),
                field(member, "weight"),
                field(member, "messagesProcessed"),
                format!("{age:.1} s ago"),
            ],
        );
    }
    writeln!(out, "{table}")
}
