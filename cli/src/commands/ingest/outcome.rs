//! What a run came to, for people.

use std::io::{self, Write as _};

use phalanx_terminal::ColorRole;
use serde_json::Value;

use crate::commands::show::{field, list, text};
use crate::commands::table::Table;

/// Prints the report of a run.
pub(super) fn print(report: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let run =
        format!("{}:{} {}", field(report, "toolId"), field(report, "chamberId"), field(report, "contextId"));
    match report["outcome"].as_str().unwrap_or_default() {
        "dead" => {
            eprintln!("phalanx: {run} is a dead letter: {}", field(report, "reason"));
            return Ok(());
        }
        "no_charts" => {
            return writeln!(out, "{run}: processed; the strategy has no chart for this chamber");
        }
        "duplicate" => writeln!(out, "{run}: was here before, nothing was done")?,
        _ => writeln!(out, "{run}: processed")?,
    }
    let mut table = Table::new(&["chart", "value", "centre", "lower limit", "upper limit", "what"]);
    for point in list(report, "points") {
        let words: Vec<String> = list(point, "flags").iter().map(text).collect();
        let limit = |name: &str| text(&point["limits"][name]);
        let paint = match words.iter().any(|word| word == "violation") {
            true => ColorRole::Bad,
            false => ColorRole::Plain,
        };
        let (center, lcl, ucl) = (limit("center"), limit("lcl"), limit("ucl"));
        let cells = [field(point, "chart"), field(point, "value"), center, lcl, ucl, words.join(", ")];
        table.styled_row(paint, cells);
    }
    writeln!(out, "\n{table}")?;
    for alarm in list(report, "alarms") {
        let what = if alarm["state"] == "cleared" { "cleared" } else { "raised" };
        let severity = field(alarm, "severity");
        let line =
            format!("{what}: {severity} alarm {}: {}", field(alarm, "alarmId"), field(alarm, "message"));
        writeln!(out, "\n{}", ColorRole::of_severity(&severity).apply(&line))?;
    }
    Ok(())
}
