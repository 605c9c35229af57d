//! What a run came to, for people and for programs.

use std::io::{self, Write as _};
use std::process::ExitCode;

use phalanx_defender::judge::alarm::alarm_json;
use phalanx_defender::record::{Alarm, Chamber, Context, Flags, Limits, Outcome, UChart};
use serde_json::{Value, json};

use crate::commands::table::Table;

/// What a run came to.
pub(super) struct Report {
    pub(super) chamber: Chamber,
    pub(super) row: Context,
    pub(super) points: Vec<UChart>,
    /// Those that the run raised or cleared.
    pub(super) alarms: Vec<Alarm>,
    /// Why it is a dead letter.
    pub(super) reason: Option<String>,
}

impl Report {
    pub(super) fn exit_code(&self) -> ExitCode {
        match self.row.outcome {
            Outcome::Dead => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        }
    }

    pub(super) fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let run = format!("{} {}", self.chamber, self.row.context);
        match (self.row.outcome, &self.reason) {
            (Outcome::Dead, reason) => {
                eprintln!("phalanx: {run} is a dead letter: {}", reason.as_deref().unwrap_or_default());
                return Ok(());
            }
            (Outcome::NoCharts, _) => {
                return writeln!(out, "{run}: processed; the strategy has no chart for this chamber");
            }
            (Outcome::Duplicate, _) => writeln!(out, "{run}: was here before, nothing was done")?,
            (Outcome::Processed | Outcome::Command, _) => writeln!(out, "{run}: processed")?,
        }
        let mut table = Table::new(&["chart", "value", "centre", "lower limit", "upper limit", "what"]);
        for point in &self.points {
            let limit = |read: fn(&Limits) -> Option<f64>| number(point.limits.as_ref().and_then(read));
            table.row([
                point.indicator.to_string(),
                number(point.value),
                limit(|limits| Some(limits.center)),
                limit(|limits| limits.lcl),
                limit(|limits| limits.ucl),
                words(point).join(", "),
            ]);
        }
        writeln!(out, "\n{table}")?;
        for alarm in &self.alarms {
            let what = if alarm.cleared.is_some() { "cleared" } else { "raised" };
            writeln!(out, "\n{what}: {} alarm {}: {}", severity(alarm), alarm.id, alarm.message)?;
        }
        Ok(())
    }

    pub(super) fn print_json(&self) -> io::Result<()> {
        let points: Vec<Value> = self.points.iter().map(point).collect();
        let alarms: Vec<Value> = self.alarms.iter().map(alarm_json).collect();
        let report = json!({
            "toolId": self.chamber.tool(),
            "chamberId": self.chamber.chamber(),
            "contextId": &*self.row.context,
            "timestamp": self.row.timestamp.to_string(),
            "strategy": &*self.row.strategy,
            "outcome": match self.row.outcome {
                Outcome::Processed => "processed",
                Outcome::NoCharts => "noCharts",
                Outcome::Duplicate => "duplicate",
                Outcome::Command => "command",
                Outcome::Dead => "dead",
            },
            "reason": self.reason,
            "points": points,
            "alarms": alarms,
        });
        writeln!(io::stdout(), "{report:#}")
    }
}

fn point(point: &UChart) -> Value {
    json!({
        "chart": &*point.indicator,
        "value": point.value,
        "limits": point.limits,
        "n": point.n,
        "flags": words(point),
    })
}

/// What there is to say of a point.
fn words(point: &UChart) -> Vec<&'static str> {
    let all = [
        (Flags::NO_VALUE, "no value"),
        (Flags::LEARNING, "learning"),
        (Flags::VIOLATION, "violation"),
        (Flags::BEGINS, "first point"),
    ];
    all.into_iter().filter(|(flag, _)| point.flags.has(*flag)).map(|(_, word)| word).collect()
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), phalanx_spc::numeric::short)
}

fn severity(alarm: &Alarm) -> &'static str {
    use phalanx_defender::record::Severity;
    match alarm.severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}
