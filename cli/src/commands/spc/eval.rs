use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap::Args;
use phalanx_defender::traces::Recording;
use phalanx_spc::equation::{Column, Equation, Outcome};
use serde_json::json;

/// Evaluates an equation on traces.
///
/// The file has a line for each point (time,svid,value; or timestamp,metric,value) or a column for each SVID
/// (time,TEMP,STEP). Times are whole microseconds, or like 2025-10-24T10:30:45Z. The context begins with its earliest
/// time. Functions: mean, std, var, min, max, range, median, quantile, first, last, count, duration, area, slope,
/// rms; windows like TEMP[10s..50s], conditions like TEMP where STEP == 3.
#[derive(Args)]
pub(crate) struct Eval {
    /// For example 'mean(RF_POWER[10s..50s])'.
    equation: String,

    /// The traces.
    #[arg(long, value_name = "FILE")]
    csv: PathBuf,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Eval {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let equation = Equation::parse(&self.equation)?;
        let shown = self.csv.display();
        let bytes = std::fs::read(&self.csv).with_context(|| format!("cannot read {shown}"))?;
        let traces = Recording::from_csv(&bytes).map_err(|error| anyhow!("{shown}, {error}"))?;
        let start = traces.series().iter().filter_map(|series| series.timestamps.first()).min();
        let start = start.copied().unwrap_or_default();
        let mut columns = Vec::new();
        for svid in equation.svids() {
            let series = traces.series().iter().find(|series| series.svid == *svid);
            columns.push(series.map(|series| Column::new(&series.timestamps, &series.values)).transpose()?);
        }
        let outcome = equation.evaluate(start, &columns);
        let text = match (&outcome, self.json) {
            (Outcome::Value(value), true) => json!({"equation": equation.text(), "value": value}).to_string(),
            (Outcome::NoValue(reason), true) => {
                json!({"equation": equation.text(), "value": null, "reason": reason.to_string()}).to_string()
            }
            (Outcome::Value(value), false) => value.to_string(),
            (Outcome::NoValue(reason), false) => format!("no value: {reason}"),
        };
        writeln!(io::stdout(), "{text}")?;
        Ok(ExitCode::SUCCESS)
    }
}
